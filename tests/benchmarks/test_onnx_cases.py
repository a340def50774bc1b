"""ONNX's own cases: what was wrong once, and a fraction of all."""

import case_suite
import pytest

SUITE = "onnx_cases:OnnxCases"
ONCE_WRONG = (
    # Reductions began at the largest finite number.
    "node/test_attention_23_boolmask_fullymasked_row_nan_robustness",
    # TVM's bfloat16 ended the process.
    "node/test_celu_bfloat16",
    # A number that was none became the least one.
    "node/test_cast_FLOAT_to_FLOAT8E5M2",
    "node/test_bitshift_left_int32_shift_ge_width",
    "node/test_mod_float_edge_cases_fmod_0_float32",
    "node/test_isinf_negative",
    # Outputs beside the first one had another type or shape.
    "node/test_dropout_default_mask",
    "node/test_layer_normalization_3d_axis1_epsilon",
    "node/test_batchnorm_example_training_mode",
    # Scales were those of the sizes, which are rounded.
    "node/test_resize_downsample_scales_linear",
    "node/test_resize_downsample_scales_cubic_antialias",
    "node/test_quantizelinear_int4",
    "node/test_spacetodepth_crd_mode_example",
    "node/test_convtranspose_output_shape",
    # TVM's own errors.
    "node/test_convtranspose_3d",
    "node/test_rms_normalization_2d_axis0",
    "node/test_pow_types_int64_int64",
    "node/test_reduce_max_empty_set_bool",
    "node/test_onehot_with_negative_axis",
    "node/test_swiglu",
    "node/test_top_k_uint64",
    # The version of the standard was taken for the first one.
    "node/test_flexattention_causal_mask",
    "pytorch-converted/test_PReLU_2d_multiparam",
)


IN_SESSIONS = (
    *("add_bcast", "and3d", "bitshift_left_uint8", "cast_FLOAT_to_BFLOAT16", "celu_bfloat16"),
    *(
        "conv_with_strides_padding",
        "gru_defaults",
        "isinf_float16",
        "qlinearmatmul_2D_uint8_float32",
    ),
    *("batchnorm_example_training_mode", "softmax_axis_1_expanded", "reduce_max_bool_inputs"),
)
"""Cases with several types, inputs and outputs."""

NEEDS_A_NUMBER = "node/test_resize_upsample_sizes_nearest"
COMPARES_SLICES = "node/test_unique_sorted_with_axis"


def _outcomes(cases, engine="chameleon"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHAMELEON_RECORDS", "none")
        made = case_suite.outcomes(SUITE, (engine,), cases, seconds=60)
        return {outcome.case: outcome for outcome in made}


@pytest.fixture(name="outcomes", scope="module")
def _few():
    return _outcomes([NEEDS_A_NUMBER, COMPARES_SLICES])


@pytest.mark.full
def test_what_was_wrong_is_right():
    outcomes = _outcomes(ONCE_WRONG)
    assert outcomes.keys() == set(ONCE_WRONG)
    assert {c: o.reason for c, o in outcomes.items() if o.kind != case_suite.RIGHT} == {}


@pytest.mark.full
def test_an_operator_that_needs_a_number_is_compiled_for_it(outcomes):
    outcome = outcomes[NEEDS_A_NUMBER]
    assert (outcome.kind, outcome.reason) == ("right", "compiled for the values of sizes")


@pytest.mark.full
def test_a_form_that_is_not_read_is_refused_with_its_operator(outcomes):
    outcome = outcomes[COMPARES_SLICES]
    assert outcome.kind == case_suite.REFUSED
    assert "Unique cannot be compiled: it compares slices of a tensor" in outcome.reason


@pytest.mark.full
def test_sessions_of_onnxruntime_give_the_same_results():
    cases = [f"node/test_{name}" for name in IN_SESSIONS]
    outcomes = _outcomes(cases, "provider")
    assert {c: o.reason for c, o in outcomes.items() if o.kind != case_suite.RIGHT} == {}


GOOD = (case_suite.RIGHT, case_suite.REFUSED)
ROUNDED = {
    "node/test_dft_inverse",
    "node/test_dft_inverse_opset19",
    "node/test_attention_4d_causal_fp16",
    "node/test_attention_4d_causal_fp16_expanded",
}
"""Their expected outputs are rounded in another place than ours; onnxruntime's differ as well."""


@pytest.mark.long
def test_a_fraction_of_all_cases_is_right_or_refused():
    names = case_suite.suite_of(SUITE, ("chameleon",)).cases()
    drawn = [name for name in names if case_suite.is_drawn(name, 0.1)]
    outcomes = _outcomes(drawn)
    assert {case for case, one in outcomes.items() if one.kind not in GOOD} <= ROUNDED
    right = [one for one in outcomes.values() if one.kind == case_suite.RIGHT]
    assert len(right) >= 0.9 * len(drawn)
