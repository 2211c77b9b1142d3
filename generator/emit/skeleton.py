"""File skeletons: jinja2 with nothing in the templates but names and loops.

May import: jinja2, errors.  To add a skeleton: `<name>.j2` beside this file, and the function that fills it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jinja2

from ..spec import OpSpec

__all__ = ["fill", "origin"]


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "."),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )


def fill(template: str, **names: Any) -> str:
    """A template with its names filled in; a name that is not given is an error."""
    return _environment().get_template(template).render(**names)


def origin(spec: OpSpec) -> str:
    """Where a spec stands, the same on every machine: family, file and line."""
    path = os.path.normpath(spec.file).replace(os.sep, "/").split("/")
    return f"{'/'.join(path[-2:])}:{spec.line}"
