"""What is wrong with a pipeline is said exactly, and all of it at once."""

import pytest
from chameleon_core._errors import ConfigError, ExitCode
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._plugins.registry import AmbiguousNameError
from chameleon_core.api import Registry
from chameleon_core.plugin_api import CostModelRecord, ExplorerRecord, PresetRecord
from synthetic import plugin_of

HEAD = "model: {operators: [{conv2d: {channels: 3}}]}\ntarget: native\n"


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("explorer: anealing", "3:11: unknown explorer 'anealing'; did you mean 'annealing'?"),
        (
            "explorer: {chains: true}",
            "3:20: option 'chains' for explorer 'annealing' must be an integer, not true",
        ),
        (
            "explorer: {persistent: yes}",
            (
                "3:24: option 'persistent' for explorer 'annealing' must be true or false, not "
                "the text 'yes'"
            ),
        ),
        ("explorer: {clip_range: .nan}", "3:24: '.nan' is no number"),
        (
            "explorer: {mode: rnk}",
            (
                "3:18: option 'mode' for explorer 'annealing' must be reg or rank, not the text "
                "'rnk'; did you mean 'rank'?"
            ),
        ),
        (
            "explorer: {kind: quik}",
            (
                "3:18: option 'kind' for explorer 'annealing' must be slow or quick, not 'quik'; "
                "did you mean 'quick'?"
            ),
        ),
        (
            "explorer: {parts: 3}",
            "3:19: option 'parts' for explorer 'annealing' must be in (1, 2) (got 3)",
        ),
        (
            "explorer: {temperature: {stop: 1}}",
            "3:26: unknown option 'stop' for 'temperature' of explorer 'annealing'",
        ),
        ("seed: 1\nseed: 2", "4:1: key 'seed' is there twice, first in line 3; remove one"),
        ("explorer:\n\tchains: 3", "4:1: a tab is used for indentation; use spaces"),
        ("seed:\t3", "3:6: a tab stands where YAML wants spaces"),
        (
            "synthesizer: null",
            (
                "3:14: 'synthesizer' must name a synthesizer, not be null; leave the key out for "
                "the default, or 'none' for none"
            ),
        ),
        ("seed: -1", "3:7: 'seed' must be at least 0, not -1"),
        ("seed: 3e0", "3:7: 'seed' must be an integer, not the number 3.0"),
        (
            "budget: {wall_time: 20x}",
            (
                "3:21: option 'wall_time' for 'budget': '20x' is no duration; write it like 90s, "
                "20m or 1h30m"
            ),
        ),
        (
            "budget: {wall_time: .inf}",
            "3:21: option 'wall_time' for 'budget' must be finite; null means no limit",
        ),
        (
            "budget: {latency: .inf}",
            "3:19: option 'latency' for 'budget' must be finite; null means no limit",
        ),
        (
            "budget: {scope: taks}",
            (
                "3:17: option 'scope' for 'budget' must be task or network, not the text 'taks'; "
                "did you mean 'task'?"
            ),
        ),
        (
            "budget: {measurements: null}",
            (
                "3:9: 'budget': a budget without an end; name 'measurements', 'wall_time' or "
                "'patience'"
            ),
        ),
        (
            "budget: {tasks_at_once: 0}",
            "3:25: option 'tasks_at_once' for 'budget' must be 'auto' or at least 1, not 0",
        ),
        (
            "budget: {tasks_at_once: all}",
            (
                "3:25: option 'tasks_at_once' for 'budget' must be an integer or auto, not the "
                "text 'all'"
            ),
        ),
        (
            "require: {min_ratio: 0.9, against: vendor}",
            "3:36: 'require' is against 'vendor', which 'baselines' does not list",
        ),
        (
            "require: {against: untuned}",
            "3:10: 'require': 'min_ratio' and 'against' belong together",
        ),
        ("baselines: none", "3:12: there is no baseline 'none'; write `baselines: []`"),
        ("baselines: [untuned, untuned]", "3:22: baseline 'untuned' is there twice; remove one"),
        ("preset: ht", "3:9: unknown preset 'ht'; did you mean 'hot'?"),
        ("output: 5", "3:9: 'output' must be a text, not the number 5; put it in quotes"),
        (
            "sampler: [greedy]",
            "3:10: 'sampler' must name a sampler, not be a list; leave the key out for the default",
        ),
        ("a: &x [*x]", "3:4: an alias that contains itself"),
        (
            "\n".join(
                f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]" for n in range(8)
            ),
            "1:1: with its aliases, the file has over 100,000 values",
        ),
        ("a: " + "[" * 1000 + "]" * 1000, "1:1: values are nested too deeply"),
        (
            "\n".join(
                f"a{n}: &a{n} {'[' * 60}{f'*a{n - 1}' if n else 'x'}{']' * 60}" for n in (0, 1)
            ),
            "3:49: values are nested too deeply",
        ),
        (
            "output: ~no-such-user/run",
            "3:9: there is no home folder ~no-such-user; write the path in full",
        ),
        ('output: "a\\0b"', "3:9: 'output' contains the character NUL; name a folder for the run"),
        (
            "a: !!python/name:os.system 3",
            (
                "3:4: the tag 'tag:yaml.org,2002:python/name:os.system' has no meaning in a "
                "pipeline; remove it"
            ),
        ),
    ],
)
def test_one_mistake_is_one_line_at_its_place(faults, text, expected):
    assert faults(f"{HEAD}{text}\n") == [f"pipeline.yaml:{expected}"]


def test_an_explorer_that_needs_scores_needs_a_cost_model(fakes, faults):
    walk = fakes.record("walk", kind=ExplorerRecord, needs_cost_model=True)
    blind = fakes.record("blind", kind=CostModelRecord, predicts=False)
    using = fakes.registry(("blind-dist", plugin_of(explorers=[walk], cost_models=[blind])))
    assert faults(f"{HEAD}explorer: walk\ncost_model: blind\n", using=using) == [
        (
            "pipeline.yaml:3:11: explorer 'walk' needs the scores of a cost model, and cost model "
            "'blind' predicts none; choose another cost model, or an explorer that needs none "
            "(annealing, random)"
        )
    ]


def test_what_an_options_class_itself_refuses_is_shown_at_its_place(faults):
    text = "model:\n  operators:\n    - conv2d: {channels: 3, stride: [2, 2]}\ntarget: native\n"
    assert faults(text) == [
        (
            "pipeline.yaml:3:15: option 'operators[0].conv2d' for frontend 'operators': "
            "the channels do not fit; choose others"
        )
    ]


def test_every_mistake_is_found_in_one_pass_in_the_order_of_the_file(faults):
    text = """\
model:
  operators:
    - conv2dd: {}
    - conv2d: {chanels: 3, stride: [2]}
    - conv2d
target: 3
seed: "3"
explorer:
  name: annealing
  clip_rnage: 3e-4
  chains: 0
  sizes: [1, 2.0, a]
  weights: {a: 1, b: '2'}
sampler: gredy
exlporer: x
budget: {measurements: x, batch_size: 64.0}
"""
    lines = faults(text, "foo", "seed.x=3")
    assert [line.removeprefix("pipeline.yaml:") for line in lines] == [
        "--set foo: write it as key=value or key.option=value",
        "--set seed.x=3: there is no 'x' in the text '3'",
        (
            "3:7: unknown entry 'conv2dd' for 'operators[0]' of frontend 'operators'; did you "
            "mean 'conv2d'?"
        ),
        "4:15: missing option 'channels' for 'operators[1].conv2d' of frontend 'operators'",
        (
            "4:16: unknown option 'chanels' for 'operators[1].conv2d' of frontend 'operators'; "
            "did you mean 'channels'?"
        ),
        (
            "4:36: option 'operators[1].conv2d.stride' for frontend 'operators' must be a list "
            "of 2, not a list with 1 entries"
        ),
        (
            "5:7: option 'operators[2]' for frontend 'operators' must be a mapping with one key, "
            "conv2d or primfunc, not the text 'conv2d'"
        ),
        "6:9: 'target' must be a text, not the number 3; put it in quotes",
        "7:7: 'seed' must be an integer, not the text '3'",
        "10:3: unknown option 'clip_rnage' for explorer 'annealing'; did you mean 'clip_range'?",
        "11:11: option 'chains' for explorer 'annealing' must be >= 1: 0",
        "12:14: option 'sizes[1]' for explorer 'annealing' must be an integer, not the number 2.0",
        "12:19: option 'sizes[2]' for explorer 'annealing' must be an integer, not the text 'a'",
        "13:22: option 'weights.b' for explorer 'annealing' must be a number, not the text '2'",
        "14:10: unknown sampler 'gredy'; did you mean 'greedy'?",
        "15:1: unknown key 'exlporer'; did you mean 'explorer'?",
        "16:24: option 'measurements' for 'budget' must be an integer, not the text 'x'",
        "16:39: option 'batch_size' for 'budget' must be an integer, not the number 64.0",
    ]


def test_several_duplicate_keys_and_tabs_are_all_listed(faults):
    assert len(faults(HEAD + "seed: 1\nseed: 2\nbudget: {scope: task, scope: task}\n")) == 2
    assert [line.split(": ")[0] for line in faults("a:\n\tb: 1\n\tc: 2\n")] == [
        "pipeline.yaml:2:1",
        "pipeline.yaml:3:1",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["missing 'model'", "missing 'target'"]),
        ("- a\n", ["must be a mapping"]),
        ("model: resnet18\ntarget: native\n", ["'model' must be a mapping with one key"]),
        ("model: {onnx: a, batch: 3}\ntarget: x\n", ["'batch' is a second one"]),
        ("model: {onx: a}\ntarget: x\n", ["unknown frontend 'onx'; did you mean 'onnx'?"]),
        ("model: {onnx: }\ntarget: x\n", ["missing option 'path' for frontend 'onnx'"]),
        (HEAD + "seed: [1\n", ["this is no YAML"]),
        (HEAD + "a: b: c\n", ["mapping values are not allowed here"]),
        (HEAD + "---\nseed: 1\n", ["another document"]),
        ("model: {onnx: a}\ntarget: ''\n", ["'target' is empty"]),
    ],
)
def test_a_file_of_another_shape_is_refused(faults, text, expected):
    lines = faults(text)
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert line.startswith("pipeline.yaml:")
        assert part in line


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path, registry):
    with pytest.raises(ConfigError, match="no such file") as caught:
        load_pipeline(tmp_path / "none.yaml", registry=registry)
    assert "chameleon init" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot be read"):
        load_pipeline(tmp_path, registry=registry)
    (tmp_path / "latin.yaml").write_bytes(b"model: {}\ntarget: \xe4\n")
    with pytest.raises(PipelineError, match=r"latin\.yaml:2:9: this is no UTF-8"):
        load_pipeline(tmp_path / "latin.yaml", registry=registry)


def test_a_missing_stage_is_named_with_what_is_installed(fakes, load, faults):
    plugin = plugin_of(**{**fakes.FAKES, "presets": []})
    lines = faults(HEAD, using=Registry.from_plugins([plugin]))
    assert "pipeline.yaml:1:1: missing 'space', and no preset gives one; installed: sketch, " in (
        "\n".join(lines)
    )
    assert len(lines) == 7


def test_the_exit_code_blames_plugins_only_where_they_are_to_blame(fakes, load):
    broken = plugin_of(explorers=RuntimeError("no licence"))
    text = HEAD + "explorer: ppo\n"
    with pytest.raises(PipelineError) as caught:
        load(text)
    assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(PipelineError) as caught:
        load(text, using=fakes.registry(("broken-dist", broken)))
    assert caught.value.exit_code == ExitCode.PLUGIN
    assert "'broken-dist' failed in chameleon_explorers: RuntimeError: no licence" in (
        caught.value.hint
    )


def test_a_name_of_two_distributions_is_an_error_until_one_is_picked(fakes, load, faults):
    using = fakes.registry(("other-dist", fakes.EXTRA))
    text = "model: {onnx: a}\ntarget: x\nexplorer: random\n"
    assert faults(text, using=using) == [
        (
            "pipeline.yaml:3:11: explorer 'random' is registered by 'fakes' and 'other-dist'; "
            "write "
            "'fakes:random' or 'other-dist:random'"
        )
    ]
    picked = load(text.replace("random", "other-dist:random"), using=using)
    assert picked.explorer.name == "other-dist:random"
    assert picked.explorer.record.summary == "Another one."


def test_two_default_presets_need_a_choice(fakes, load):
    pipeline = {**fakes.DEFAULT, "explorer": "random"}
    preset = PresetRecord(name="default", summary="", pipeline=pipeline)
    using = fakes.registry(("other-dist", plugin_of(presets=[preset])))
    text = "model: {onnx: a}\ntarget: x\n"
    with pytest.raises(AmbiguousNameError, match="'fakes' and 'other-dist'"):
        load(text, using=using)
    assert load(text + "preset: other-dist:default\n", using=using).explorer.name == "random"


def test_a_dict_is_checked_as_a_file_is(registry):
    with pytest.raises(PipelineError, match=r"pipeline, explorer\.clip: unknown option 'clip'"):
        from_dict(
            {"model": {"onnx": "a"}, "target": "x", "explorer": {"clip": 1}}, registry=registry
        )
    with pytest.raises(PipelineError, match="is no value that a pipeline can hold"):
        from_dict({"model": {"onnx": object()}}, registry=registry)


def test_a_source_file_that_is_not_there(faults, tmp_path):
    [line] = faults("model: {operators: [primfunc: a/b.py:gelu]}\ntarget: native\n")
    assert line.startswith("pipeline.yaml:1:31: ")
    assert f"there is no file {tmp_path}/a/b.py" in line
