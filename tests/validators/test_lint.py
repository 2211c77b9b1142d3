"""Rules for the source: everything that is not on a list is refused, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwright.validators.lint import lint

from .kernels import COPY, source

CORPUS = Path(__file__).parent / "corpus"


def rules(body: str = COPY, *, head: str = "") -> set[str]:
    return {f.rule for f in lint(source(body, head=head), ["ow_t"])}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.cpp")), ids=lambda p: p.stem)
def test_honest_kernels_pass(path: Path) -> None:
    assert lint(path.read_text(encoding="utf-8"), [f"ow_{path.stem}"]) == []


@pytest.mark.parametrize(
    "head",
    [
        "static const float table[2] = {1, 2};",
        "static constexpr int64_t block = 64;",
        # an attribute of a statement: the compiler is told not to warn
        "static int steps(int k) { switch (k) { case 1: ++k; [[fallthrough]]; default: return k; } }",
        "typedef float v8 __attribute__((vector_size(32)));\nstatic v8 twice(v8 a) { return a < 0 ? -a : a + a; }",
        "template <class T> static T square(T x) { return x * x; }\nstatic float four() { return square(2.0f); }",
        'extern "C" float expf(float);\nstatic float e() { return expf(1); }',
        "#define CHUNK 32\n#pragma GCC ivdep",
        "static void part(void*, int64_t, int64_t, int32_t) {}\n"
        "static void go(const OwCall* c, OwChunk fn) {\n"
        "  if (c->parallel) c->parallel(c->pool, 1, 1, fn, 0); else fn(0, 0, 1, 0); }\n"
        "static void all(const OwCall* c) { go(c, part); }",
        "struct Pair { float a, b; };\nstatic Pair make(float x) { return Pair{x, __builtin_sqrtf(x)}; }",
        "union Bits { float f; uint32_t u; };",
        "static float three() { const float a = 2; auto f = [&](float b) { return a + b; }; return f(1.0f); }",
        '#include "opwright/kernel.h"\n'
        "static float most(const float* x, int64_t n) {\n"
        "  return owk_fold<float>(0, n, 0, [&](float acc, int64_t k) { return owk_max_f32(x[k], acc); }); }",
        "template <bool U> static void part2(void*, int64_t, int64_t, int32_t) {}\n"
        "static void run2() { (part2<true>)(nullptr, 0, 1, 0); }",
        "struct Sum { double hi, lo; Sum(double h, double l) : hi(h), lo(l) {}\n"
        "  Sum operator+(double v) const { return Sum(hi + v, lo); } };\n"
        "struct Pair { int64_t i; double v; };\n"
        "static Pair operator*(Pair a, Pair b) { return Pair(a.i * b.i, a.v * b.v); }\n"
        "static double own() { return (Pair{1, 2} * Pair(3, 4)).v + (Sum(0, 0) + 1.0).hi; }",
        "template <class V> static V least() { return V(-100); }\n"
        "template <class G> static double begin(const G& g) { return least<decltype(g.x)>(); }",
        "template <class F> static void each(int64_t n, F f) { for (int64_t i = 0; i < n; ++i) f(i); }\n"
        "static void count(int64_t* at) { each(3, [&](int64_t i) { *at += i; }); }",
        "template <int K> static double down(double x) {\n"
        "  if constexpr (K == 0) return x; else return down<K - 1>(x); }",
        "struct Table { float at[4]; };\n"
        "static constexpr Table made() { Table t = {}; for (int k = 0; k < 4; ++k) t.at[k] = 1.5f * k; return t; }\n"
        "static constexpr Table table3 = made();",
        "static float half() { constexpr int n = 2; static const float t[n] = {0.5f, n}; return t[0]; }",
        '/* system("rm") asm goto */ // new delete throw',
    ],
)
def test_what_a_kernel_needs_is_allowed(head: str) -> None:
    assert lint(source(head=head), ["ow_t"]) == []


def test_the_limits_of_integers_have_their_names() -> None:
    limits = [
        f"{sign}{bits}_{end}"
        for bits in (8, 16, 32, 64)
        for sign, end in (("INT", "MIN"), ("INT", "MAX"), ("UINT", "MAX"))
    ]
    text = "".join(f" s += (float){name};" for name in limits)
    assert lint("#include <stdint.h>\n" + source(COPY + "float s = 0;" + text + " y[0] = s;"), ["ow_t"]) == []


def test_a_jump_to_a_label_is_only_a_loop_written_out() -> None:
    assert rules("int64_t i = 0; again: if (i < n) { y[i] = x[i]; ++i; goto again; }") == set()


@pytest.mark.parametrize(
    ("rule", "head", "body"),
    [
        ("state", "static int counter;", COPY + "counter++;"),
        # what a template may call is a lambda: of a function the address is taken
        (
            "function pointer",
            "template <class F> static float use(F f) { return f(1.0f); }\n"
            "static float twice(float x) { return x + x; }",
            COPY + "y[0] = use(twice);",
        ),
        ("call", "template <class V> static V far(V x) { return elsewhere<V>(x); }", COPY),
        ("state", "", COPY + "static float cached; cached = x[0];"),
        ("state", "namespace { float* seen; }", COPY),
        ("state", "extern char** environ;", COPY),
        ("state", "static float f() { return 1; }\nstatic const float early = f();", COPY),
        ("state", "", COPY + "static const int64_t first = n; y[0] = first;"),
        ("state", "", COPY + "const float first = x[0]; static const float kept = first; y[0] = kept;"),
        ("stack", "", COPY + "float room[32768]; room[n] = 1; y[0] = room[n];"),
        ("word", "static thread_local int q;", COPY),
        ("word", "", COPY + "volatile int z = 0; z = 1;"),
        ("word", "", COPY + 'asm("nop");'),
        ("construct", "", COPY + "void* p = &&end; goto *p; end: return 0;"),
        ("construct", "", COPY + "try { throw 1; } catch (...) {}"),
        ("construct", "", COPY + "float* z = new float[4]; delete[] z;"),
        ("construct", "static auto f = [] { return 1.0f; };", COPY + "y[0] = f();"),
        ("state", "", COPY + "static auto f = [] { return 1.0f; }; y[0] = f();"),
        ("construct", "", COPY + "struct { float z; } k; k.z = (0, [&] { return x[0]; })();"),
        ("construct", "", COPY + "float room[n]; room[0] = 1;"),
        ("call", 'extern "C" int system(const char*);', COPY + 'system("true");'),
        ("call", 'extern "C" void* malloc(unsigned long);', COPY + "malloc(8);"),
        ("call", 'extern "C" long clock();', COPY + "clock();"),
        ("call", "", COPY + "__builtin_alloca(8);"),
        ("call", "", COPY + "__atomic_fetch_add((int*)y, 1, 0);"),
        (
            "function pointer",
            'extern "C" float expf(float);',
            COPY + "float (*p)(float) = expf; y[0] = p(1);",
        ),
        ("function pointer", "struct T { float (*p)(float); };", COPY),
        ("function pointer", "static void h() {}", COPY + "void* p = (void*)h; y[0] = p != 0;"),
        ("address", "", COPY + "y[0] = *(float*)(uint64_t)n;"),
        ("attribute", "__attribute__((constructor)) static void early() {}", COPY),
        ("attribute", "[[gnu::destructor]] static void late() {}", COPY),
        ("attribute", '__attribute__((section(".data"))) static const int z = 1;', COPY),
        ("preprocessor", "#ifdef __clang__\n#define X 1\n#endif", COPY),
        ("preprocessor", '#embed "/etc/passwd"', COPY),
        ("include", "#include <stdio.h>", COPY),
        ("include", '#define H "opwright/abi.h"\n#include H', COPY),
        ("pragma", '#pragma GCC optimize("fast-math")', COPY),
        ("macro", "#define JOIN(a, b) a##b", COPY),
        ("word", "", COPY + "if (__GNUC__) y[0] = 0;"),
        ("text", "", COPY + "y[0] = '\\x41';"),
        ("text", "%:define Z 1", COPY),
        ("text", "static float caf\u00e9 = 1;", COPY),
        ("linkage", "void helper() {}", COPY),
        ("linkage", 'extern "C" void ow_u() {}', COPY),
        ("parse", "static int z = undeclared;", COPY),
    ],
)
def test_what_is_refused(rule: str, head: str, body: str) -> None:
    assert rule in rules(body, head=head)


def test_a_missing_entry_and_another_signature_are_refused() -> None:
    text = source()
    assert {f.rule for f in lint(text, ["ow_other"])} >= {"signature", "linkage"}
    wrong = text.replace(
        'extern "C" int32_t ow_t(const OwCall* call)', 'extern "C" int32_t ow_t(OwCall* call)'
    )
    assert "signature" in {f.rule for f in lint(wrong, ["ow_t"])}


def test_a_finding_says_where() -> None:
    text = source("static int kept;" + COPY)
    finding = next(f for f in lint(text, ["ow_t"]) if f.rule == "state")
    assert finding.place.text is not None
    assert "static int kept" in finding.place.text
    assert finding.place.text[finding.place.column - 1 :].startswith("kept")
    assert finding.to_json()["rule"] == "state"
