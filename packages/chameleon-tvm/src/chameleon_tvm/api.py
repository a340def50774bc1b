"""The public names of this package for others: operators, templates, instructions, and targets.

Each name is imported when it is first used. The import of TVM takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_tvm import _emit as emit
    from chameleon_tvm import _late_tvm as late_tvm
    from chameleon_tvm import _open_axes as open_axes
    from chameleon_tvm._building.builder import TVMBuilder
    from chameleon_tvm._building.exporting import Exported, identifiers, tvm_builder, unoccupied
    from chameleon_tvm._building.kernel import CPU_FLUSH, Program, device_kind
    from chameleon_tvm._building.lowering import UNCHECKED, lower_function, plain_loops_pipeline
    from chameleon_tvm._building.remote.buffers import DeviceBuffers
    from chameleon_tvm._building.remote.facts import (
        FACTS_FUNCTION,
        ServerFacts,
        ask,
        check,
        own_facts,
    )
    from chameleon_tvm._building.remote.failures import meaning, remote_calls, ruins_context
    from chameleon_tvm._building.remote.kernels import KernelLoader, flush_of
    from chameleon_tvm._building.remote.local_device import LocalDevice
    from chameleon_tvm._building.remote.probe import ask_processor
    from chameleon_tvm._building.remote.smoke_test import check_output, smoke_test_for
    from chameleon_tvm._device.cpus.features import (
        flag_of,
        host_features,
        target_without,
        used_features,
    )
    from chameleon_tvm._device.cpus.registers import Reported, reported_bit
    from chameleon_tvm._device.linking import architecture, own_triple
    from chameleon_tvm._device.targets import (
        TVMTargets,
        foreign_kind,
        kind_of,
        target_info,
        tvm_target,
    )
    from chameleon_tvm._emit import with_shapes
    from chameleon_tvm._instructions.base import Dot, Instruction
    from chameleon_tvm._instructions.emission import intrinsic, permissions_of
    from chameleon_tvm._instructions.selection import dots_of, narrow_weights_pay
    from chameleon_tvm._instructions.tiles import TileProduct
    from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
    from chameleon_tvm._metaschedule.strategy import ChameleonStrategy
    from chameleon_tvm._metaschedule.traces import applied
    from chameleon_tvm._opaque import opaque, plain_arithmetic
    from chameleon_tvm._operators.activation_arrays import ARRAYS
    from chameleon_tvm._operators.activations import activated
    from chameleon_tvm._operators.attention_specs import (
        KEY_LAYOUTS,
        AttentionSpec,
        ordered,
    )
    from chameleon_tvm._operators.base import Operator, is_for_cpu, operator_of, seeded_array
    from chameleon_tvm._operators.convolution_specs import (
        CONVOLUTIONS,
        DEPTHWISE,
        GROUPED,
        Conv2dSpec,
        ConvolutionSpec,
        DepthwiseConv2dSpec,
        GroupedSpec,
        convolution_of,
    )
    from chameleon_tvm._operators.epilogues import Quantization
    from chameleon_tvm._operators.frontend_options import OperatorsOptions
    from chameleon_tvm._operators.layouts import (
        SPATIAL,
        channels_first,
        channels_last,
        is_channels_last,
        with_rank,
    )
    from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec, DenseSpec
    from chameleon_tvm._operators.prim_functions import (
        function_arguments,
        function_flop,
        loaded_function,
    )
    from chameleon_tvm._operators.requantization import QuantizedProduct
    from chameleon_tvm._operators.spec import (
        FusedSpec,
        OperatorSpec,
        TypedSpec,
        leaky_relu,
        slope_of,
    )
    from chameleon_tvm._quick_tvm import te, tirx, tvm
    from chameleon_tvm._sources import named_function, named_object
    from chameleon_tvm._spaces.auto import AutoSpace
    from chameleon_tvm._spaces.loops.hiding import hide_arithmetic
    from chameleon_tvm._spaces.loops.lowering import LANES, loops_of
    from chameleon_tvm._spaces.loops.partial_sums import REFUSED, keeping_nan, with_initial_extrema
    from chameleon_tvm._spaces.loops.schedule import (
        LoopPlan,
        default_plan,
        reduces_contiguous,
        scheduled,
    )
    from chameleon_tvm._spaces.loops.template import KIND, plan_of
    from chameleon_tvm._spaces.loops.trees import (
        find_nodes,
        structural_equal,
        structural_hash,
        structural_map,
    )
    from chameleon_tvm._spaces.options import AutoOptions
    from chameleon_tvm._spaces.sketch.options import SketchOptions
    from chameleon_tvm._spaces.sketch.packing import layout_free
    from chameleon_tvm._spaces.sketch.provider import SketchBuilder, SketchPlan
    from chameleon_tvm._spaces.template.base import ScheduledTemplate, Template
    from chameleon_tvm._spaces.template.estimates import FLOAT_BYTES, TRANSPOSE_CYCLES
    from chameleon_tvm._spaces.template.options import TemplateOptions
    from chameleon_tvm._spaces.template.provider import TemplateSpace
    from chameleon_tvm._types import (
        BFLOAT16,
        COMPUTE,
        FLOAT16,
        FLOATING_IN,
        HALVES,
        INT8,
        LARGEST_DIFFERENCES,
        LARGEST_PRODUCT,
        LARGEST_SUM,
        MOST_ELEMENTS,
        REDUCED,
        STORAGE,
        UINT8,
        ComputeType,
        StorageType,
        array_type,
        display_name,
        tolerance_of,
    )
    from chameleon_tvm._words import (
        TUNED,
        WAY_OUT,
        chosen_types,
        first_line,
        identifier,
        one_line,
        symbol_of,
        telling_line,
        types_in_words,
    )
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
