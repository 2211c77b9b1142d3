"""Rules for the source of a kernel, deny by default: what is not on a list here is refused, with line and column.

A kernel computes its outputs from its inputs.  It keeps no state, starts nothing, opens nothing, asks no clock,
and reads the same to libclang as to the compiler that builds it (hence no conditional compilation).  Generated text
and hand-written bodies pass the same rules.

May import: libclang, generator.errors, resources.  To allow something: one entry in the list that refused it
(`CALLS`, `BUILTINS`, `KINDS`, `ATTRIBUTES`, `PRAGMAS`), and a test that shows why it is harmless.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clang import cindex

from .. import resources
from ..generator.errors import MachineError, Place

__all__ = ["Finding", "LintUnavailable", "lint"]


class LintUnavailable(MachineError):
    """libclang does not load here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One refused construct: the rule's name, what was found, and where."""

    rule: str
    message: str
    place: Place

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "message": self.message,
            "line": self.place.line,
            "column": self.place.column,
        }

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.message}"


_MATH = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "pow",
    "fmod",
    "remainder",
    "fma",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "nearbyint",
    "round",
    "roundeven",
    "fabs",
    "copysign",
    "fmax",
    "fmin",
    "ldexp",
    "frexp",
    "hypot",
    "scalbn",
    "logb",
    "ilogb",
    "lgamma",
    "tgamma",
)

#: Functions outside the text that a kernel may declare and call: pure, or touching only the memory they are given.
CALLS = frozenset(
    [f"{name}{suffix}" for name in _MATH for suffix in ("", "f")] + ["memcpy", "memmove", "memset", "memcmp"]
)

#: Compiler builtins, without `__builtin_`.
BUILTINS = re.compile(
    rf"(?:{'|'.join(_MATH)}|lrint|llrint|abs|labs|llabs)f?l?"
    r"|(?:inf|nan|nans|huge_val)f?|isnan|isinf|isinf_sign|isfinite|isnormal|signbitf?|isunordered|isless|isgreater"
    r"|mem(?:cpy|move|set|cmp)|assume_aligned|assume|expect|unreachable|prefetch|constant_p"
    r"|(?:add|sub|mul)_overflow|clz(?:l|ll)?|ctz(?:l|ll)?|popcount(?:l|ll)?|bswap(?:16|32|64)|bit_cast"
    r"|shufflevector|convertvector|reduce_(?:add|mul|max|min|and|or|xor)|elementwise_\w+|nontemporal_(?:store|load)"
)
# Atomics order memory between the threads of one call; none of them makes a float sum depend on that order.
ATOMICS = frozenset(
    {"__atomic_load_n", "__atomic_store_n", "__atomic_compare_exchange_n", "__atomic_fetch_or"}
)

#: Other names of the compiler's own.
RESERVED = frozenset(
    {
        "__attribute__",
        "__attribute",
        "__restrict",
        "__restrict__",
        "__real__",
        "__imag__",
        "__int128",
        "__bf16",
        "__fp16",
        "__alignof__",
        "__ATOMIC_RELAXED",
        "__ATOMIC_ACQUIRE",
        "__ATOMIC_RELEASE",
        "__ATOMIC_ACQ_REL",
        "__ATOMIC_SEQ_CST",
        "__extension__",
        "__INT64_MAX__",
        "__INT32_MAX__",
        "__FLT_MAX__",
        "__DBL_MAX__",
        "__FLT_MIN__",
        "__DBL_MIN__",
    }
)

ATTRIBUTES = frozenset(
    {
        "vector_size",
        "aligned",
        "always_inline",
        "noinline",
        "may_alias",
        "unused",
        "maybe_unused",
        "hot",
        "cold",
        "const",
        "pure",
        "flatten",
        "likely",
        "unlikely",
        "nodiscard",
        "noreturn",
        "visibility",
        "gnu",
        "ext_vector_type",
        "nothrow",
        "assume_aligned",
        "nonnull",
        "unroll",
        "fallthrough",
    }
)
PRAGMAS = re.compile(
    r"#\s*pragma\s+(?:GCC\s+(?:ivdep|unroll\s+\d+)|omp\s+simd\b.*|clang\s+loop\b.*|once)\s*$"
)
# The helper headers are ours, trusted and reviewed; their texts take part in every kernel's hash.
HEADERS = ("abi", "kernel", "scalar", "gemm", "pairs", "lined", "special", "parts", "masked")
INCLUDES = re.compile(rf"#\s*include\s*(?:\"opwright/(?:{'|'.join(HEADERS)})\.h\"|<stdint\.h>)\s*$")
_HELPER = re.compile(r"owk_\w+")
DIRECTIVES = ("include", "define", "undef", "pragma")

# Names that mean something else to libclang than to the compiler, or to one build than to the next.
_WORDS = re.compile(
    r"__clang\w*|__GNUC\w*|__GNUG__|__GXX\w*|__VERSION__|__has_\w+|__FILE__|__LINE__|__DATE__|__TIME\w*__|__COUNTER__"
    r"|__BASE_FILE__|__INCLUDE_LEVEL__|_Pragma|__pragma|asm|__asm|__asm__|thread_local|__thread|_Thread_local|volatile"
    r"|__volatile__|__volatile|mutable|virtual|register|try|catch|throw|new|delete|typeid|dynamic_cast|co_await"
    r"|co_yield|co_return|import|module|export|concept|requires|__OPTIMIZE\w*__|__SANITIZE\w*__|constinit"
)

_K = cindex.CursorKind


def _name_missing() -> None:
    """`T(a, b)` of an aggregate has a kind in libclang 18 that its Python does not name, and stumbles over."""
    try:
        _K.from_id(155)
    except ValueError:
        _K.CXX_PAREN_LIST_INIT_EXPR = _K(155)


_name_missing()


def _kinds(*names: str) -> frozenset[Any]:
    return frozenset(getattr(_K, n) for n in names if hasattr(_K, n))


#: Cursor kinds that may stand anywhere in a kernel.
KINDS = _kinds(
    # declarations
    "NAMESPACE",
    "LINKAGE_SPEC",
    "FUNCTION_DECL",
    "FUNCTION_TEMPLATE",
    "VAR_DECL",
    "PARM_DECL",
    "FIELD_DECL",
    "STRUCT_DECL",
    "CLASS_DECL",
    "UNION_DECL",
    "ENUM_DECL",
    "ENUM_CONSTANT_DECL",
    "TYPEDEF_DECL",
    "TYPE_ALIAS_DECL",
    "TEMPLATE_TYPE_PARAMETER",
    "TEMPLATE_NON_TYPE_PARAMETER",
    "CLASS_TEMPLATE",
    "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION",
    "TYPE_ALIAS_TEMPLATE_DECL",
    "STATIC_ASSERT",
    "CXX_METHOD",
    "CXX_ACCESS_SPEC_DECL",
    "UNEXPOSED_DECL",
    "USING_DECLARATION",
    "USING_DIRECTIVE",
    "CONSTRUCTOR",
    # references
    "TYPE_REF",
    "TEMPLATE_REF",
    "NAMESPACE_REF",
    "MEMBER_REF",
    "OVERLOADED_DECL_REF",
    "VARIABLE_REF",
    # expressions
    "UNEXPOSED_EXPR",
    "DECL_REF_EXPR",
    "MEMBER_REF_EXPR",
    "CALL_EXPR",
    "INTEGER_LITERAL",
    "FLOATING_LITERAL",
    "CHARACTER_LITERAL",
    "STRING_LITERAL",
    "PAREN_EXPR",
    "UNARY_OPERATOR",
    "ARRAY_SUBSCRIPT_EXPR",
    "BINARY_OPERATOR",
    "COMPOUND_ASSIGNMENT_OPERATOR",
    "CONDITIONAL_OPERATOR",
    "CSTYLE_CAST_EXPR",
    "COMPOUND_LITERAL_EXPR",
    "INIT_LIST_EXPR",
    "CXX_STATIC_CAST_EXPR",
    "CXX_REINTERPRET_CAST_EXPR",
    "CXX_CONST_CAST_EXPR",
    "CXX_FUNCTIONAL_CAST_EXPR",
    "CXX_PAREN_LIST_INIT_EXPR",
    "CXX_BOOL_LITERAL_EXPR",
    "CXX_NULL_PTR_LITERAL_EXPR",
    "CXX_UNARY_EXPR",
    "CXX_THIS_EXPR",
    "SIZE_OF_PACK_EXPR",
    "BUILTIN_BIT_CAST_EXPR",
    "LAMBDA_EXPR",
    # statements
    "COMPOUND_STMT",
    "CASE_STMT",
    "DEFAULT_STMT",
    "IF_STMT",
    "SWITCH_STMT",
    "WHILE_STMT",
    "DO_STMT",
    "FOR_STMT",
    "CONTINUE_STMT",
    "BREAK_STMT",
    "RETURN_STMT",
    "NULL_STMT",
    "GOTO_STMT",  # to a label of the same function; a computed one has a kind of its own, which is refused
    "LABEL_STMT",
    "LABEL_REF",
    "DECL_STMT",
    "CXX_FOR_RANGE_STMT",
    "UNEXPOSED_STMT",
    # attributes (their names are checked by token)
    "UNEXPOSED_ATTR",
    "CONST_ATTR",
    "PURE_ATTR",
    "VISIBILITY_ATTR",
    "ALIGNED_ATTR",
    "WARN_UNUSED_RESULT_ATTR",
    "OPENMP_SIMD_DIRECTIVE" if hasattr(_K, "OPENMP_SIMD_DIRECTIVE") else "OMP_SIMD_DIRECTIVE",
    "OMP_SIMD_DIRECTIVE",
)
#: Bytes that one variable may take of the stack: threads have little of it, and what lies deep in it nobody has soiled.
STACK = 1 << 16
_CHUNK_TYPE = "void (void *, long, long, int)"
_RUN, _WORKSPACE = ("int (const OwCall *)", "long (const OwCall *)")
_FILE = "kernel.cpp"


@functools.cache
def _index() -> Any:
    try:
        return cindex.Index.create()
    except cindex.LibclangError as error:
        raise LintUnavailable(
            f"libclang does not load: {error}", hint="pip install 'libclang>=18.1,<19'"
        ) from None


class _Lint:
    def __init__(self, source: str, symbols: Sequence[str], arguments: Sequence[str]) -> None:
        self.source, self.lines = source, source.split("\n")
        self.found: list[Finding] = []
        self.entries = {
            s + tail: kind
            for s in symbols
            for tail, kind in (("", _RUN), ("_infer", _RUN), ("_workspace", _WORKSPACE))
        }
        self.defined: set[str] = set()
        self.types: set[str] = set()
        self.arguments = arguments

    def report(self, rule: str, message: str, line: int, column: int = 0) -> None:
        place = Place(_FILE, line, column).with_text(self.source)
        finding = Finding(rule, message, place)
        if finding not in self.found:
            self.found.append(finding)

    def at(self, rule: str, message: str, cursor: Any) -> None:
        self.report(rule, message, cursor.location.line, cursor.location.column)

    # -- the text itself
    def text(self) -> None:
        """What must hold before any parser is trusted: plain characters, no conditionals, known includes."""
        defining = False
        for number, line in enumerate(self.lines, 1):
            if not line.isascii() or "\0" in line:
                self.report("text", "a character outside ASCII", number)
            continued = line.endswith("\\")
            backslash = line.find("\\")
            if backslash >= 0 and not (continued and backslash == len(line) - 1):
                self.report("text", "a backslash", number, backslash + 1)
            if "??" in line or "%:" in line or "<:" in line or "<%" in line:
                self.report("text", "a digraph or trigraph", number)
            stripped = line.strip()
            if stripped.startswith("#") and not defining:
                self.directive(stripped.rstrip("\\").rstrip(), number)
            elif continued and not defining:
                self.report("text", "a line continued outside a macro", number)
            if "##" in line:
                self.report("macro", "`##` makes names that no rule has seen", number, line.index("##") + 1)
            defining = continued and (defining or stripped.startswith("#"))

    def directive(self, line: str, number: int) -> None:
        word = line[1:].strip().split(" ", 1)[0].split("(")[0]
        code = re.sub(r"//.*|/\*.*?\*/", "", line).strip()
        if word not in DIRECTIVES:
            self.report("preprocessor", f"`#{word}`: a kernel's text says the same to every compiler", number)
        elif word == "include" and not INCLUDES.fullmatch(code):
            names = ", ".join(f"{name}.h" for name in HEADERS)
            self.report("include", f"`{line}`: a kernel includes opwright/{names} and stdint.h only", number)
        elif word == "pragma" and not PRAGMAS.fullmatch(code):
            self.report("pragma", f"`{line}` is not on the list", number)

    # -- tokens
    def tokens(self, unit: Any) -> None:
        words = [t for t in unit.cursor.get_tokens() if t.kind != cindex.TokenKind.COMMENT]
        for k, token in enumerate(words):
            text = token.spelling
            where = token.location
            if _WORDS.fullmatch(text):
                self.report("word", f"`{text}` has no place in a kernel", where.line, where.column)
            elif text.startswith("__") and not _reserved_is_allowed(text):
                self.report("call", f"`{text}` is not on the list of builtins", where.line, where.column)
            follower = words[k + 1] if k + 1 < len(words) else None
            doubled = (
                follower is not None
                and text == follower.spelling == "["
                and (follower.location.offset == where.offset + 1)
            )
            if text in ("__attribute__", "__attribute", "__declspec") or doubled:
                self.attributes(words[k + 1 : k + 60])

    def attributes(self, tokens: Sequence[Any]) -> None:
        """Every name at the level of the attribute list itself."""
        depth, opened = 0, False
        for k, t in enumerate(tokens):
            text = t.spelling
            if text in "([":
                depth += 1
                opened = True
            elif text in ")]":
                depth -= 1
                if opened and depth <= 0:
                    return
            elif depth <= (2 if tokens[0].spelling == "(" else 1) and re.match(r"[A-Za-z_]", text):
                before = tokens[k - 1].spelling if k else ""
                if before in ("(", "[", ",", "::") and text.strip("_") not in ATTRIBUTES:
                    where = t.location
                    self.report(
                        "attribute", f"attribute `{text}` is not on the list", where.line, where.column
                    )

    # -- the tree
    def tree(self, unit: Any) -> None:
        for d in unit.diagnostics:
            if d.severity >= cindex.Diagnostic.Error:
                self.report("parse", d.spelling, d.location.line, d.location.column)
        for c in _mine(unit.cursor):
            if c.kind in (_K.FUNCTION_DECL, _K.FUNCTION_TEMPLATE, _K.CXX_METHOD) and c.is_definition():
                self.defined.add(c.spelling)
            elif c.kind in (_K.TEMPLATE_TYPE_PARAMETER, _K.STRUCT_DECL, _K.CLASS_TEMPLATE):
                self.types.add(c.spelling)  # `V(x)` converts
        for c in unit.cursor.get_children():
            if _in_file(c):
                self.walk(c, ())
        for name in self.entries.keys() - self.defined:
            self.report("signature", f"the entry `{name}` is missing", 1)

    def walk(self, c: Any, above: tuple[Any, ...]) -> None:
        try:
            kind = c.kind
        except ValueError:  # newer than libclang's Python knows
            where = c.location
            self.report("construct", "an expression that libclang does not name", where.line, where.column)
            return
        if kind not in KINDS:
            self.at("construct", f"{kind.name.lower().replace('_', ' ')} is not allowed", c)
        elif kind == _K.UNEXPOSED_DECL:
            if [t.spelling for t in c.get_tokens()] != [";"]:
                self.at("construct", "a declaration that libclang does not name", c)
        elif kind == _K.LAMBDA_EXPR:
            self.closure(c, above)
        elif kind in (_K.FUNCTION_DECL, _K.FUNCTION_TEMPLATE):
            self.function(c)
        elif kind in (_K.VAR_DECL, _K.FIELD_DECL, _K.PARM_DECL):
            self.variable(c, above)
        elif kind == _K.CALL_EXPR:
            self.call(c)
        elif kind == _K.DECL_REF_EXPR:
            self.reference(c, above)
        elif kind in (_K.CSTYLE_CAST_EXPR, _K.CXX_REINTERPRET_CAST_EXPR, _K.CXX_FUNCTIONAL_CAST_EXPR):
            self.cast(c)
        elif kind == _K.CONSTRUCTOR and any(b.kind == _K.CALL_EXPR for b in c.walk_preorder()):
            self.at("construct", "a constructor that calls something", c)
        for child in c.get_children():
            self.walk(child, (*above, c))

    def function(self, c: Any) -> None:
        name = c.spelling
        shown = _canonical(c.type)
        if name in self.entries and c.linkage == cindex.LinkageKind.EXTERNAL:
            if shown != self.entries[name]:
                self.at("signature", f"`{name}` is `{shown}`, not `{self.entries[name]}`", c)
            if not c.is_definition():
                self.at("signature", f"`{name}` is declared and not defined", c)
        elif c.is_definition() or name in self.defined:
            hidden = c.linkage in (cindex.LinkageKind.INTERNAL, cindex.LinkageKind.NO_LINKAGE)
            if not hidden and c.kind == _K.FUNCTION_DECL:
                self.at("linkage", f"`{name}` is visible outside this text: make it static", c)
        elif name not in CALLS:
            self.at("call", f"`{name}` is declared here and defined elsewhere, and not on the list", c)
        if c.kind == _K.FUNCTION_DECL and c.type.is_function_variadic():
            self.at("construct", "a function with any number of arguments", c)

    def variable(self, c: Any, above: tuple[Any, ...]) -> None:
        shown = c.type.get_canonical()
        if _is_function_pointer(shown) and c.type.spelling.removeprefix("const ") != "OwChunk":
            self.at("function pointer", f"`{c.spelling}` holds a function", c)
        if shown.kind == cindex.TypeKind.VARIABLEARRAY:
            self.at("construct", f"`{c.spelling}` has an extent known only at run time", c)
        if c.kind != _K.VAR_DECL:
            return
        inside = any(a.kind in (_K.FUNCTION_DECL, _K.FUNCTION_TEMPLATE, _K.CXX_METHOD) for a in above)
        kept = not inside or c.storage_class in (cindex.StorageClass.STATIC, cindex.StorageClass.EXTERN)
        if not kept:
            size = c.type.get_size()
            if size > STACK:
                self.at("stack", f"`{c.spelling}` takes {size} bytes of the stack, and may take {STACK}", c)
            return
        if c.storage_class == cindex.StorageClass.EXTERN:
            self.at("state", f"`{c.spelling}` lives outside this text", c)
        if not _is_const(c.type):
            self.at("state", f"`{c.spelling}` keeps its value between calls: only constants may", c)
        if _is_constexpr(c):
            return  # the compiler computes it, and nothing else
        if any(b.kind == _K.CALL_EXPR and not b.spelling.startswith("__builtin_") for b in c.walk_preorder()):
            self.at("state", f"`{c.spelling}` is computed when the library is loaded", c)
        elif varies := next((b for b in c.walk_preorder() if _varies(b)), None):
            # It would keep what the first call had, in memory that can be written.
            what = varies.spelling or "this"
            self.at("state", f"`{c.spelling}` keeps what the first call made it: `{what}` is no constant", c)

    def call(self, c: Any) -> None:
        callee = c.referenced
        name = c.spelling
        if callee is None:
            names = [n.spelling for n in c.walk_preorder() if n.kind == _K.OVERLOADED_DECL_REF] or [
                *_in_parentheses(c),
                *_written(c),
            ]
            if not names or not (
                names[0] in self.defined | self.types | CALLS or _HELPER.fullmatch(names[0])
            ):
                self.at(
                    "call",
                    f"a call of `{names[0] if names else name or '?'}` that libclang does not resolve",
                    c,
                )
            return
        if callee.kind in (_K.FUNCTION_DECL, _K.FUNCTION_TEMPLATE, _K.CXX_METHOD):
            own = name in self.defined or name in CALLS or name.startswith("operator") or _is_helper(callee)
            if not own and not name.startswith("__"):  # the compiler's own names are seen by `tokens`
                self.at("call", f"`{name}` is not on the list of calls", c)
            return
        if callee.kind == _K.CONSTRUCTOR and (
            _in_file(callee) or callee.semantic_parent.spelling.startswith(("Ow", "owk_"))
        ):
            return  # its own, or a plain copy of a struct of abi.h or of the helper headers
        if callee.kind == _K.FIELD_DECL and name == "parallel":
            return
        if callee.kind == _K.VAR_DECL and _is_closure(callee):
            return
        if (
            callee.kind == _K.PARM_DECL
            and callee.type.spelling.strip("&").removeprefix("const ").strip() in self.types
        ):
            return  # of a template: a lambda that it is handed, for a function's address is refused where it is taken
        if (
            callee.kind in (_K.PARM_DECL, _K.VAR_DECL)
            and callee.type.spelling.removeprefix("const ") == "OwChunk"
        ):
            return
        self.at("function pointer", f"`{name}` is called through a pointer", c)

    def closure(self, c: Any, above: tuple[Any, ...]) -> None:
        """A lambda lives as long as the statement or the block that it stands in: it is handed to a helper that calls
        it, or has a name there.  Anywhere else it could be kept."""
        parents = [a for a in above if a.kind not in (_K.UNEXPOSED_EXPR, _K.PAREN_EXPR)]
        parent = parents[-1] if parents else None
        handed = parent is not None and parent.kind == _K.CALL_EXPR
        named = (
            parent is not None
            and parent.kind == _K.VAR_DECL
            and any(a.kind == _K.COMPOUND_STMT for a in above)
        )
        if not handed and not named:
            self.at("construct", "a lambda that is neither handed to a call nor named in a block", c)
        if named and parent is not None and parent.storage_class == cindex.StorageClass.STATIC:
            self.at("state", f"`{parent.spelling}` keeps a lambda between calls", c)

    def reference(self, c: Any, above: tuple[Any, ...]) -> None:
        """A function named without being called: only a chunk handed to `parallel`."""
        target = c.referenced
        if target is None or target.kind != _K.FUNCTION_DECL:
            return
        parents = [a for a in above if a.kind not in (_K.UNEXPOSED_EXPR, _K.PAREN_EXPR)]
        parent = parents[-1] if parents else None
        if parent is not None and parent.kind == _K.CALL_EXPR:
            first = next(iter(parent.get_children()), None)
            if first is not None and first.extent.start == c.extent.start and parent.spelling == c.spelling:
                return  # it is what is called
            if c.spelling.startswith("operator") and parent.spelling == c.spelling:
                return  # `a + b` of a struct of its own: the operator stands behind its left side
        if _canonical(target.type) == _CHUNK_TYPE:
            return
        self.at("function pointer", f"the address of `{c.spelling}` is taken", c)

    def cast(self, c: Any) -> None:
        if c.type.get_canonical().kind != cindex.TypeKind.POINTER:
            return
        operand = [k for k in c.get_children() if k.kind.is_expression()]
        source = operand[-1].type.get_canonical().kind if operand else None
        if source is not None and cindex.TypeKind.BOOL.value <= source.value <= cindex.TypeKind.INT128.value:
            literal = [t.spelling for t in operand[-1].get_tokens()]
            if literal != ["0"]:
                self.at("address", "an integer becomes an address", c)


def _reserved_is_allowed(text: str) -> bool:
    """Some builtins are no calls to libclang, so names of the compiler's own are checked wherever they stand."""
    if text.startswith("__builtin_"):
        return BUILTINS.fullmatch(text.removeprefix("__builtin_")) is not None
    return text in ATOMICS or text in RESERVED or text.strip("_") in ATTRIBUTES


def _varies(c: Any) -> bool:
    """Whether an expression names what is known only at run time: an argument, or a variable that is no constant."""
    if c.kind == _K.CXX_THIS_EXPR:
        return True
    if c.kind != _K.DECL_REF_EXPR or c.referenced is None:
        return False
    named = c.referenced
    if named.kind != _K.VAR_DECL:
        return bool(named.kind == _K.PARM_DECL)
    outside = named.semantic_parent is not None and named.semantic_parent.kind in (
        _K.TRANSLATION_UNIT,
        _K.NAMESPACE,
    )
    constant = outside or named.storage_class == cindex.StorageClass.STATIC
    return not (constant and _is_const(named.type)) and not _is_constexpr(named)


def _is_constexpr(c: Any) -> bool:
    return any(t.spelling == "constexpr" for t in itertools.islice(c.get_tokens(), 4))


def _is_helper(c: Any) -> bool:
    """Whether a function is one of the helper headers'."""
    file = c.location.file
    folder = resources.include_dir() / "opwright"
    return (
        file is not None
        and Path(file.name).parent == folder
        and Path(file.name).suffix == ".h"
        and Path(file.name).stem in (*HEADERS, "vmath")
    )


def _is_closure(c: Any) -> bool:
    """Whether a variable is the name of a lambda (inside a template its type is not known yet)."""
    inside = [k for k in c.get_children() if k.kind in (_K.LAMBDA_EXPR, _K.UNEXPOSED_EXPR)]
    return any(k.kind == _K.LAMBDA_EXPR for top in inside for k in (top, *top.get_children()))


def _in_parentheses(c: Any) -> list[str]:
    """The function that `(f)(…)` names: libclang resolves no call of it."""
    first = next(iter(c.get_children()), None)
    found = [n for n in first.walk_preorder() if n.kind == _K.DECL_REF_EXPR] if first is not None else []
    functions = (_K.FUNCTION_DECL, _K.FUNCTION_TEMPLATE)
    return [n.spelling for n in found if n.referenced is not None and n.referenced.kind in functions]


def _written(c: Any) -> list[str]:
    """The name in front of `<…>(` or `(`, where what is called depends on a template's argument: instantiated, it is
    found among this text's own functions and the helpers', for nothing else is declared."""
    words = [t.spelling for t in c.get_tokens()]
    return words[:1] if len(words) > 1 and words[1] in ("<", "(") and words[0].isidentifier() else []


def _canonical(kind: Any) -> str:
    text: str = kind.get_canonical().spelling
    return text.replace("long long", "long").replace(" noexcept", "")


def _is_const(kind: Any) -> bool:
    return bool(kind.get_canonical().is_const_qualified())  # an array is const when its elements are


def _is_function_pointer(kind: Any) -> bool:
    kinds = cindex.TypeKind
    while kind.kind in (kinds.POINTER, kinds.LVALUEREFERENCE, kinds.CONSTANTARRAY, kinds.INCOMPLETEARRAY):
        pointed = kind.kind in (kinds.POINTER, kinds.LVALUEREFERENCE)
        kind = (kind.get_pointee() if pointed else kind.element_type).get_canonical()
    return kind.kind in (
        cindex.TypeKind.FUNCTIONPROTO,
        cindex.TypeKind.FUNCTIONNOPROTO,
        cindex.TypeKind.MEMBERPOINTER,
    )


def _in_file(c: Any) -> bool:
    file = c.location.file
    return file is None or file.name == _FILE


def _mine(root: Any) -> Iterator[Any]:
    for c in root.get_children():
        if _in_file(c):
            yield from c.walk_preorder()


def lint(source: str, symbols: Sequence[str], *, march: str | None = None) -> list[Finding]:
    """Everything in a kernel's text that the rules refuse, in the order of the text.

    symbols: the kernels that it defines; the text must export `<symbol>`, `<symbol>_infer`, `<symbol>_workspace`
    with the signatures of abi.h, and nothing else.
    """
    stubs = Path(__file__).resolve().parent / "stubs"
    arguments = [
        "-x",
        "c++",
        "-std=c++20",
        "-nostdinc",
        "-nostdinc++",
        f"-I{resources.include_dir()}",
        f"-I{stubs}",
        "-Wno-everything",
        "-fno-spell-checking",
    ]
    if march:
        arguments.append(f"-march={march}")
    work = _Lint(source, symbols, arguments)
    work.text()
    if any(f.rule in ("text", "include", "preprocessor") for f in work.found):
        return work.found  # what a parser says of such a text is worth nothing
    try:
        unit = _index().parse(_FILE, args=arguments, unsaved_files=[(_FILE, source)])
    except cindex.TranslationUnitLoadError as error:
        work.report("parse", f"libclang cannot read this: {error}", 1)
        return work.found
    work.tokens(unit)
    work.tree(unit)
    return sorted(work.found, key=lambda f: (f.place.line, f.place.column, f.rule))
