"""A tiny configuration of any transformers architecture: fields are found by what their names mean.

    kwargs = shrink(LlamaConfig)          {'hidden_size': 64, 'num_hidden_layers': 2, …}; nested configs inside
    for kwargs in attempts(SomeConfig)    from the smallest to the least changed: a caller takes the first that works

No architecture is named here.  A field's meaning decides its size (`_RULES`, first match wins); fields that depend
on each other (heads × head size, groups, sections of a rotary embedding, per-layer lists, token ids) are then made
to agree.  May import: the standard library (configs are used through their dataclass fields).
To teach a meaning: a line in `_RULES`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Sizes", "attempts", "meant", "shrink"]


@dataclass(frozen=True)
class Sizes:
    """What tiny is."""

    hidden: int = 64
    intermediate: int = 128
    expert: int = 32
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    vocab: int = 128
    positions: int = 64
    experts: int = 4
    chosen: int = 2
    window: int = 8
    channels: int = 32
    horizon: int = 16
    features: int = 2

    @property
    def patches(self) -> int:
        """Patches along one side of an image."""
        return 4


#: (what the name looks like, which group it is in, the size).  Groups are what `attempts` gives up one by one.
_RULES: tuple[tuple[str, str, Callable[[Sizes], int]], ...] = (
    # Counts of layers of a kind, and counts that only sound like it.
    (
        r"feat_extract_layers|adapter_layers|nextn|max_window_layers|layers_per|residual_layers",
        "keep",
        lambda s: 0,
    ),
    (r"kv_shared_layers", "layers", lambda s: 0),
    (r"dense_layers$|first_k_dense", "layers", lambda s: 1),
    (r"(window_pattern|layer_interval|layer_group_size)$", "layers", lambda s: s.layers),
    (r"(^|_)n_layers?$|num_layers$|_layers$|^depth$|^num_blocks$|_per_block$", "layers", lambda s: s.layers),
    (r"^type_vocab|task_type_vocab", "keep", lambda s: 0),
    (r"vocab_size|group_vocab$", "vocab", lambda s: s.vocab),
    (
        r"experts?_per_tok|^moe_k$|^top_?k(_experts)?$|selected_experts|moe_top_?k",
        "experts",
        lambda s: s.chosen,
    ),
    (
        r"num_(local_|routed_|moe_)?experts$|zero_expert_num$|^n_routed_experts$|^moe_num_experts$",
        "experts",
        lambda s: s.experts,
    ),
    (r"shared_experts$", "keep", lambda s: 1),
    (r"^n_group$|^num_expert_groups?$", "experts", lambda s: 2),
    (r"^topk_group$", "experts", lambda s: 1),
    (r"(key_value|kv|linear.*key|index_n)_?heads$|multi_query_group_num", "heads", lambda s: s.kv_heads),
    (r"(?<!dim_)(?<!per_)heads?$(?<!d_head)(?<!dim_head)", "heads", lambda s: s.heads),
    (r"qk_nope_head_dim|qk_rope_head_dim|rotary_dim", "head", lambda s: s.head // 2),
    (r"head_dim$|^(attention_)?head_size$|^d_kv$|d_head$|dim_head$|^kv_channels$", "head", lambda s: s.head),
    (r"q_lora_rank", "head", lambda s: 2 * s.head),
    (r"time_step_rank", "head", lambda s: s.head // 4),
    (r"lora_rank|_rank$|^state_size$|d_state$|ssm_state", "head", lambda s: s.head),
    (r"(moe|expert).*(intermediate|ffn)|shared_intermediate", "hidden", lambda s: s.expert),
    (
        r"intermediate|ffn_(dim|hidden|size|inner)|^d_ff$|^dff$|^d_inner$|^mlp_dim$|^n_inner$|feed_?forward_(dim|size)",
        "hidden",
        lambda s: s.intermediate,
    ),
    (r"original_max_position|max_source_positions", "positions", lambda s: s.positions // 2),
    (
        r"max_(\w+_)?position|^context_size$|^n_positions$|^n_ctx$|max_seq(uence)?_len|max_target_positions",
        "positions",
        lambda s: s.positions,
    ),
    (
        r"sliding_window(_size)?$|^local_attention$|attention_(window|chunk)(_size)?$|(^|_)chunk_size$",
        "window",
        lambda s: s.window,
    ),
    (r"^projection_dim$", "projection", lambda s: s.hidden),
    (r"conv_pos_embedding_groups", "heads", lambda s: s.heads),
    (r"conv_pos_embeddings", "positions", lambda s: s.head),
    (r"tokens_per_image$", "image", lambda s: (s.patches // 2) ** 2),
    (r"num_queries|latent_query_num|num_proposals|^num_latents$", "positions", lambda s: 8),
    (
        r"^num_filters$",
        "channels",
        lambda s: s.channels // 4,
    ),  # of the first stage: each next one doubles them
    (r"^base_channels$", "channels", lambda s: s.channels),
    (
        r"hidden_size$|^d_model$|^n_embd$|embed_dim$|hidden_dim$|^embedding_(size|dim)$|word_embed_proj_dim|"
        r"^emb_dim$|lru_width|hidden_size_per_layer|^dim$|^d_latents$",
        "hidden",
        lambda s: s.hidden,
    ),
)
_COMPILED = tuple((re.compile(p), g, f) for p, g, f in _RULES)

_TOKEN = re.compile(r"token_(id|index)$")
#: Tokens in whose places features of something else stand.
_STANDS = re.compile(r"(image|video|audio)_token_(id|index)$")


def _fields(config: Any) -> dict[str, Any]:
    """The config's own fields with the values it resolved, nested configs left out."""
    base = {
        f.name
        for c in type(config).__mro__[1:]
        if c.__name__ in ("PreTrainedConfig", "PretrainedConfig") and dataclasses.is_dataclass(c)
        for f in dataclasses.fields(c)
    }
    return {n: v for n in _names(config) if n not in base and not _is_config(v := _get(config, n))}


def _names(config: Any) -> list[str]:
    return (
        [f.name for f in dataclasses.fields(config)]
        if dataclasses.is_dataclass(config)
        else list(vars(config))
    )


def _get(config: Any, name: str) -> Any:
    """A field; where the config refuses to say one value for all layers, the one it was given."""
    try:
        return getattr(config, name, None)
    except Exception:
        return vars(config).get(name)


def _derived(config: Any, have: Mapping[str, Any]) -> set[str]:
    """Numbers that the config works out from its other fields where nobody gives them."""
    if not dataclasses.is_dataclass(config):
        return set()
    absent = {f.name for f in dataclasses.fields(config) if f.default is None}
    return {n for n in absent & have.keys() if isinstance(have[n], int) and not isinstance(have[n], bool)}


def _is_config(x: Any) -> bool:
    return hasattr(x, "to_diff_dict") and hasattr(x, "model_type")


def _rule(name: str) -> tuple[str, Callable[[Sizes], int]] | None:
    for pattern, group, size in _COMPILED:
        if pattern.search(name):
            return group, size
    return None


def meant(name: str, sizes: Sizes = Sizes()) -> int | None:
    """The size that a field's name means, if it means one."""
    found = _rule(name)
    return (found[1](sizes) or None) if found is not None else None


def shrink(
    config_class: Any, sizes: Sizes = Sizes(), without: frozenset[str] = frozenset(), start: Any = None
) -> dict[str, Any]:
    """Keyword arguments of a tiny configuration.  `without`: groups of fields that stay as they are; `start`: an
    instance to shrink instead of the default one."""
    config = start if start is not None else config_class()
    have = _fields(config)
    if "derived" in without:
        derived = _derived(config, have)
        have = {n: v for n, v in have.items() if n not in derived}
    out: dict[str, Any] = {}
    staged = _staged(have)
    for name, value in have.items():
        if name == "vocab_size" and value is None:
            out[name] = sizes.vocab
        unfilled = () if "windows" in without else _UNFILLED
        if value is None and "fill" in without and not (unfilled and name.endswith(unfilled)):
            found = _rule(name)
            if found is not None and found[1](sizes) > 0:
                out[name] = found[1](sizes)
        if name == "head_dim" and value is None and "head" not in without:
            out[name] = sizes.head
        if name == "pad_token_id" and value is None and "pad" in without:
            out[name] = 0
        if name in _KINDS and value is None and "kinds" in without:
            count = out.get("num_hidden_layers", have.get("num_hidden_layers")) or sizes.layers
            out[name] = [_KINDS[name][k % 2] for k in range(count)]
        if name == "prediction_length" and value is None:  # how far to predict: it has no default
            out[name] = sizes.horizon
            if have.get("num_time_features") == 0:  # without any, its input of times would be empty
                out["num_time_features"] = sizes.features
        if isinstance(value, float) and value > 1 and "layers" not in without and _MULTIPLES.search(name):
            out[name] = 1.0
        if isinstance(value, bool) or not isinstance(value, int) or value <= 1:
            continue
        if staged and name == "embed_dim":
            continue  # its multiples are shared out among each stage's heads
        found = _rule(name)
        if found is None or found[0] in without or found[0] == "keep":
            continue
        size = found[1](sizes)
        if value > size or (found[0] == "head" and name.endswith("head_dim")):
            out[name] = size
    _agree(have, out, sizes, without)
    for name, value in vars(config).items():
        if _is_config(value):
            own = shrink(type(value), sizes, without, start=value)
            chosen = _given(value, "given" in without, without)
            out[name.lstrip("_")] = type(value)(**chosen | _asked_of(value, own, "stages" in without) | own)
    if "same" in without:
        _across(config, out)
    _features(config, have, out)
    _tokens(have, out, config, sizes)
    return out


def _features(config: Any, have: Mapping[str, Any], out: dict[str, Any]) -> None:
    """What an image becomes is as much smaller as the image."""
    names = [n for n, v in have.items() if _FEATURES.search(n) and isinstance(v, list | tuple) and v]
    before = _side(config) if names else None
    now = next((n for x in (out, *(v for v in out.values() if _is_config(v))) if (n := _side(x))), None)
    if before is None or now is None or now >= before:
        return

    def scaled(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(map(scaled, x))
        return max(x * now // before, 1) if type(x) is int else x

    out |= {n: scaled(have[n]) for n in names}


def _side(config: Any) -> int | None:
    """The longer side of the images that a configuration, or one that it holds, is of."""
    if isinstance(config, Mapping):
        size, held = config.get("image_size"), [v for v in config.values() if _is_config(v)]
    else:
        size, held = vars(config).get("image_size"), [v for v in vars(config).values() if _is_config(v)]
    size = max(size, default=None) if isinstance(size, list | tuple) else size
    return size if type(size) is int else next((n for c in held if (n := _side(c)) is not None), None)


def _across(config: Any, out: Mapping[str, Any]) -> None:
    """A number of one nested configuration that was the width of another is what became of that."""
    nested = {n.lstrip("_"): v for n, v in vars(config).items() if _is_config(v)}
    for name, before in nested.items():
        for other, beside in nested.items():
            if other == name or not _is_config(out.get(name)) or not _is_config(out.get(other)):
                continue
            now = {n: _get(out[other], n) for n in _names(beside) if _WIDTH.search(n)}
            for field in _names(before):
                old = vars(before).get(field)
                if type(old) is not int or _rule(field) is not None:
                    continue
                width = _width_of(old, {n: _get(beside, n) for n in now}, now)
                if width is not None and _get(out[name], field) == old:
                    setattr(out[name], field, width)


def _given(config: Any, ints: bool = False, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What the owner of a nested configuration chose and its class does not: flags and rates, the patches that
    its images were cut to, by how much each stage shortens or lengthens, and of the groups `without` that stay
    as they are everything; sizes shrink, unless (`ints`) they are fewer than the class has, or strides."""
    try:
        plain = type(config)()
    except Exception:  # it has required fields: all of them are given
        return {}
    fields = _fields(config)
    have = {
        n: v
        for n, v in fields.items()
        if isinstance(v, bool | float)
        or n == "patch_size"
        or (isinstance(v, list | tuple) and _STRIDES.search(n))
    }
    have |= {n: v for n, v in fields.items() if isinstance(v, int) and (_rule(n) or ("",))[0] in without}
    if ints:
        own = {n: _get(plain, n) for n in fields}
        have |= {
            n: v for n, v in fields.items() if isinstance(v, int) and isinstance(own[n], int) and v < own[n]
        }
    # Flags that its model reads and its class does not declare.
    have |= {n: v for n, v in vars(config).items() if isinstance(v, bool) and not hasattr(plain, n)}
    return {n: v for n, v in have.items() if n[0] != "_" and _get(plain, n) != v}


def _asked_of(backbone: Any, own: Mapping[str, Any], every: bool = False) -> dict[str, Any]:
    """The stages that a backbone is asked for: no field of its class, so it would forget them when built anew;
    `every` one behind the stem, where its owner says that it asks for one."""
    stages = getattr(backbone, "stage_names", None)
    if every and isinstance(stages, list | tuple) and len(stages) > 2 and "out_features" not in own:
        return {"out_features": list(stages[1:])}
    indices = getattr(backbone, "_out_indices", None)
    if not isinstance(indices, list | tuple) or len(indices) < 2 or "out_features" in own:
        return {}
    now = own.get("num_hidden_layers")
    if isinstance(now, int) and max(indices) > now:  # fewer layers than were asked for
        return {}
    return {"out_indices": list(indices)}


def _agree(have: Mapping[str, Any], out: dict[str, Any], sizes: Sizes, without: frozenset[str]) -> None:
    """Fields that speak of each other."""

    def now(*names: str) -> Any:
        return next((out.get(n, have[n]) for n in names if n in have), None)

    heads, kv = now("num_attention_heads", "n_head", "num_heads"), now("num_key_value_heads")
    if (
        isinstance(heads, int)
        and isinstance(kv, int)
        and "num_key_value_heads" in out
        and "kv_lora_rank" in have
    ):
        out["num_key_value_heads"] = heads  # latent attention expands to every head
    if isinstance(kv, int) and kv > 1 and isinstance(heads, int) and heads % now("num_key_value_heads"):
        out["num_key_value_heads"] = heads
    if "num_key_value_heads" in have and kv is None and isinstance(heads, int):
        out["num_key_value_heads"] = heads
    for name, value in have.items():  # one group a channel stays one group a channel
        if (
            name.endswith("groups")
            and isinstance(value, int)
            and value > 64
            and value == have.get("hidden_size")
        ):
            out[name] = out.get("hidden_size", value)
    # A state-space mixer: heads × head size is the expanded width.
    expand, hidden = now("mamba_expand", "expand"), now("hidden_size", "d_model")
    for count, size in (
        ("mamba_n_heads", "mamba_d_head"),
        ("mamba_num_heads", "mamba_head_dim"),
        ("num_heads", "head_dim"),
    ):
        if (
            count in have
            and size in have
            and isinstance(expand, int | float)
            and isinstance(hidden, int)
            and "hidden" not in without
        ):
            if count == "num_heads" and "expand" not in have:
                continue
            out[size] = sizes.head
            out[count] = max(int(expand * hidden) // sizes.head, 1)
            for groups in ("n_groups", "mamba_n_groups"):
                if isinstance(have.get(groups), int) and have[groups] > 1:
                    out[groups] = 2
    if "mamba_d_ssm" in have and isinstance(expand, int | float):
        out["mamba_d_ssm"] = int(expand * hidden)
    if "linear_num_value_heads" in out:
        out["linear_num_value_heads"] = sizes.heads
    if "v_head_dim" in out or "v_head_dim" in have:
        out["v_head_dim"] = sizes.head
    _images(have, out, sizes, without)
    _lists(have, out, sizes, without)
    _rotary(have, out, now, sizes, without)
    if (
        "same" in without
        and isinstance(heads, int)
        and kv is not None
        and have.get("num_key_value_heads") == have.get("num_attention_heads")
    ):
        out["num_key_value_heads"] = heads
    for name, value in have.items() if "same" in without else ():
        width = _width_of(value, have, out) if type(value) is int and name not in out else None
        if width is not None and _rule(name) is None:
            out[name] = width
    for name, value in have.items():
        if name in out and _WIDTH.search(name):
            out[name] = _first_stage(value, have, out) or out[name]
    first_dense = have.get("first_k_dense_replace")
    if isinstance(first_dense, int) and first_dense > 1:
        out["first_k_dense_replace"] = 1


def _first_stage(width: int, have: Mapping[str, Any], out: Mapping[str, Any]) -> int | None:
    """The channels of the first stage, where the model's width is that and a list holds all stages'."""
    for name, value in have.items():
        ints = isinstance(value, list | tuple) and len(value) > 1 and all(type(x) is int for x in value)
        if ints and value[0] == width and max(value) > width:
            first: int = out.get(name, value)[0]
            return first
    return None


def _images(have: Mapping[str, Any], out: dict[str, Any], sizes: Sizes, without: frozenset[str]) -> None:
    """A few patches along each side; images without patches become 64 wide."""
    image = have.get("image_size")
    patches = have.get("num_patches")
    if isinstance(patches, int) and image is None and "patch_size" not in have and "image" not in without:
        out["num_patches"] = min(patches, sizes.patches)  # along a side, where no field says what a patch is
    windows = any(
        isinstance(have.get(n), list | tuple) for n in ("num_heads", "focal_windows", "masked_unit_size")
    )
    if image is None or "image" in without or windows:
        return  # windows must tile every stage: the default does
    patch = have.get("patch_size")
    patch = patch[0] if isinstance(patch, Sequence) and patch else patch
    side = sizes.patches * patch if isinstance(patch, int) and patch > 4 else 64
    if isinstance(image, int) and image > side:
        out["image_size"] = side
    elif isinstance(image, list | tuple) and all(isinstance(n, int) for n in image):
        short = min(image)
        out["image_size"] = type(image)(side * max(n // short, 1) if short else n for n in image)


def _lists(have: Mapping[str, Any], out: dict[str, Any], sizes: Sizes, without: frozenset[str]) -> None:
    """Per-layer lists follow the number of layers and keep every kind; stages keep their number and lose depth."""
    count_name = next(
        (
            n
            for n in ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
            if isinstance(have.get(n), int)
        ),
        None,
    )
    if count_name is not None and "layers" not in without:
        full, count = have[count_name], out.get(count_name, have[count_name])
        per_layer = {
            n: v
            for n, v in have.items()
            if isinstance(v, list | tuple)
            and len(v) == full
            and full > 1
            and not any(isinstance(x, list | tuple) for x in v)
        }
        if count < full:
            kinds = [list(dict.fromkeys(v)) for n, v in per_layer.items() if isinstance(v[0], str)]
            times = 2 if "twice" in without else 1  # layers of one kind may share weights: that takes two
            count = max([count, *(times * len(k) for k in kinds if len(k) <= 4)])
            columns = {n: list(v) for n, v in per_layer.items() if isinstance(v[0], str)}
            at = _spread(columns, count, full, times)
            out[count_name] = count
            for n, v in per_layer.items():
                out[n] = type(v)(v[k] for k in at)
    for name, value in have.items():
        if not isinstance(value, list | tuple) or not value:
            continue
        if name == "_out_indices" and len(value) > 1:
            name = "out_indices"
        if name.startswith("_"):
            continue
        if name in out:
            value = out[name]
        if count_name is not None and all(
            isinstance(x, list | tuple)
            and len(x) == 2
            and isinstance(x[0], list | tuple)
            and isinstance(x[1], int)
            for x in value
        ):
            kinds = list(value[0][0])  # [[kinds, repeats], …]
            layers = -(-out.get(count_name, have[count_name]) // len(kinds))
            out[name], out[count_name] = [[kinds, layers]], layers * len(kinds)
            continue
        ints = all(isinstance(x, int) and not isinstance(x, bool) for x in value)
        if (
            ints
            and name in ("depths", "num_layers_per_stage", "layers_per_stage")
            and "layers" not in without
        ):
            out[name] = type(value)(min(x, sizes.layers) for x in value)
        elif ints and count_name is None and _LAYERS_OF.search(name) and "layers" not in without:
            out[name] = type(value)(x if x < sizes.layers else x % sizes.layers for x in value)
        elif ints and name.endswith("block_repeats") and "layers" not in without:
            out[name] = type(value)(1 for _ in value)
        elif (
            ints
            and _STAGES.search(name)
            and "channels" not in without
            and not _staged(have)
            and not _told_twice(name, have)
        ):
            out[name] = type(value)(_narrowed(value, sizes.channels))
        elif ints and len(set(value)) == 1 and (width := _width_of(value[0], have, out)) is not None:
            out[name] = type(value)(width for _ in value)
        elif ints and name == "conv_dim" and "channels" not in without:
            out[name] = type(value)(min(x, sizes.channels) for x in value)
        elif (
            ints
            and re.search(r"_indices$|_indexes$|_idxs$|out_features$|_layers$|layer_ids$", name)
            and count_name is not None
        ):
            limit = max(out.get(count_name, have[count_name]), min(len(value), 6, have[count_name]))
            out[count_name] = limit
            if any(x >= limit for x in value):
                n = min(len(value), limit)
                out[name] = type(value)(range(limit - n, limit))
        elif ints and name.endswith("intermediate_size") and "hidden" not in without:
            out[name] = type(value)(min(x, sizes.intermediate) for x in value)


#: Names of fields for which nothing is a choice: without a window there is none, without a head size it follows.
_UNFILLED = ("window", "window_size", "chunk_size", "head_dim", "lora_rank")
#: Lists of layers' kinds that a model reads and its configuration may leave out.
_KINDS = {"layer_types": ("conv", "full_attention"), "mlp_layer_types": ("dense", "sparse")}
#: Names of lists of another configuration's layers.
_LAYERS_OF = re.compile(r"feature_layers?$|select_layers?$|hook_ids$")
#: Factors on depths that other fields hold.
_MULTIPLES = re.compile(r"depth_(coefficient|multiplier|mult)$")
#: Names of lists that hold the extents of what an image becomes.
_FEATURES = re.compile(r"feat(ure)?_sizes$")
#: Names of a model's width.
_WIDTH = re.compile(r"hidden_(size|dim)$|^d_model$")
#: Names of lists of how much each stage shortens or lengthens.
_STRIDES = re.compile(r"(ratios|rates|strides?|scales|factors)$")
#: Names of lists that hold each stage's channels.
_STAGES = re.compile(r"hidden_sizes$|^widths$|^embed_dims$")


def _staged(have: Mapping[str, Any]) -> bool:
    """Whether each stage has its own number of heads, which its channels must be a multiple of."""
    return any(isinstance(have.get(n), list | tuple) for n in ("num_heads", "num_attention_heads"))


def _width_of(old: int, have: Mapping[str, Any], out: Mapping[str, Any]) -> int | None:
    """What became of the model's width, when that is what this number was."""
    widths = {out[n] for n, v in have.items() if v == old and n in out and _WIDTH.search(n)}
    return widths.pop() if old > 8 and len(widths) == 1 else None


def _told_twice(name: str, have: Mapping[str, Any]) -> bool:
    """Whether another list holds the same stages' channels, under a name that says nothing."""
    return any(
        n.strip("_") != name and isinstance(v, list | tuple) and max(have[name]) in v for n, v in have.items()
    )


def _narrowed(widths: Sequence[int], least: int) -> list[int]:
    """Every stage's channels by one power of two fewer, the narrowest not below `least`."""
    by = 1
    while min(widths) // (2 * by) >= least and all(n % (2 * by) == 0 for n in widths):
        by *= 2
    return [n // by for n in widths]


def _spread(kinds: Mapping[str, list[str]], count: int, full: int, times: int = 1) -> list[int]:
    """Which layers stay: the first ones of every kind (`times` of each), then from the front; in order."""
    keep: list[int] = []
    for column in kinds.values():
        for kind in dict.fromkeys(column):
            for k in [k for k, x in enumerate(column) if x == kind][:times]:
                if k not in keep and len(keep) < count:
                    keep.append(k)
    for k in range(full):
        if len(keep) >= count:
            break
        if k not in keep:
            keep.append(k)
    return sorted(keep[:count])


def _rotary(
    have: Mapping[str, Any],
    out: dict[str, Any],
    now: Callable[..., Any],
    sizes: Sizes,
    without: frozenset[str],
) -> None:
    """Sections of a rotary embedding add up to half a head."""
    rope = have.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return
    hidden, heads = (
        now("hidden_size", "d_model", "embed_dim"),
        now("num_attention_heads", "num_heads", "n_head"),
    )
    head = now("head_dim") or (
        hidden // heads if isinstance(hidden, int) and isinstance(heads, int) else sizes.head
    )

    def fit(parameters: Mapping[str, Any]) -> dict[str, Any]:
        new = dict(parameters)
        if "sections" in without:  # the model's code has sections that its configuration does not say
            new.setdefault("mrope_section", [3, 3, 2] if "spatial" in without else [2, 3, 3])
        section = new.get("mrope_section")
        if isinstance(section, list | tuple) and section:
            half = int(head * float(new.get("partial_rotary_factor") or 1)) // 2
            share = [max(half * n // sum(section), 1) for n in section]
            share[-1] = half - sum(share[:-1])
            new["mrope_section"] = share
        if isinstance(new.get("original_max_position_embeddings"), int):
            new["original_max_position_embeddings"] = sizes.positions // 2
        for factors in ("short_factor", "long_factor"):
            if isinstance(new.get(factors), list | tuple):
                new[factors] = list(new[factors])[: head // 2]
        return new

    nested = all(isinstance(v, Mapping) for v in rope.values()) and bool(rope)
    fitted = {k: fit(v) for k, v in rope.items()} if nested else fit(rope)
    if fitted != dict(rope):
        out["rope_parameters"] = fitted


def _tokens(have: Mapping[str, Any], out: dict[str, Any], config: Any, sizes: Sizes) -> None:
    """Special tokens lie in the vocabulary: the usual three at its head, the others at its end, all different."""
    vocab = out.get("vocab_size", have.get("vocab_size"))
    if not isinstance(vocab, int):
        vocabs = [getattr(v, "vocab_size", None) for k, v in out.items() if _is_config(v)]
        vocab = next((v for v in vocabs if isinstance(v, int)), None)
    if vocab is None:
        return
    usual = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    last = vocab - 1
    for name in _names(config):
        value = _get(config, name)
        if not _TOKEN.search(name) or isinstance(value, bool) or name in out:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        high = [v for v in values if isinstance(v, int) and v >= vocab]
        if value is None and _STANDS.match(name):  # a model that asks for it has none by default
            high = [vocab]
        if not high:
            continue
        if name in usual:
            out[name] = usual[name]
        else:
            out[name] = last
            last -= 1


#: How wide a model is: what shrinks least safely, and costs little where layers and experts are few.
_WIDTHS = "projection hidden head heads"
_ALL = f"{_WIDTHS} channels experts positions image window layers vocab"
#: What to leave as it is, one attempt after the other (`given`, `same`, `pad`, `sections`, `spatial`, `kinds`,
#: `derived`, `twice`, `fill`, `windows`, `stages`: what to do).
_GIVE_UP: tuple[frozenset[str], ...] = tuple(
    frozenset(g.split())
    for g in (
        "",
        "given",
        "same",
        "sections",
        "sections spatial",
        "fill",
        "kinds",
        "kinds fill",
        "pad",
        "projection",
        "derived",
        "derived twice",
        "channels",
        "window",
        "head",
        "head heads",
        "experts",
        "layers",
        f"{_WIDTHS} channels",
        f"{_WIDTHS} channels fill",
        "fill windows",
        "image",
        "positions image",
        "vocab same",
        "stages",
        "stages channels",
        f"{_WIDTHS} channels experts positions image window",
        _ALL,
    )
)


def attempts(config_class: Any, sizes: Sizes = Sizes()) -> Iterator[dict[str, Any]]:
    """Keyword arguments from the smallest configuration to the least changed; equal ones once."""
    seen: list[str] = []
    for without in _GIVE_UP:
        try:
            kwargs = shrink(config_class, sizes, without)
        except Exception:  # a config's own validation refuses: the next attempt changes less
            continue
        text = repr(sorted(kwargs.items(), key=lambda kv: kv[0]))
        if text not in seen:
            seen.append(text)
            yield kwargs
