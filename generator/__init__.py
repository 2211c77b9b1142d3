"""What a spec means, and how code is written from it.  Start at `spec.py`; levels are listed in docs/internals.md."""
