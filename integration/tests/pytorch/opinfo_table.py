"""Which of PyTorch's operators (OpInfo, its own test data) tiny-tensor has, how they are called, and what differs.

An operator is looked up here by its name and variant, "max|binary", or by its name. Where the table says nothing,
`nn.functional.x` is `tiny_tensor.nn.functional.x`, and any other is the method of Tensor with the last part of its
name, both with the arguments that PyTorch takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tiny_tensor.nn.functional as F
from tiny_tensor import Tensor

# Written otherwise: a function of what PyTorch's operator takes.
WRITTEN = {
  # several tensors are arguments, and not a list
  "cat": "lambda tensors, dim=0: Tensor.cat(*tensors, dim=dim)",
  "stack": "lambda tensors, dim=0: Tensor.stack(*tensors, dim=dim)",
  "hstack": "lambda tensors: Tensor.hstack(*tensors)",
  "vstack": "lambda tensors: Tensor.vstack(*tensors)",
  "dstack": "lambda tensors: Tensor.dstack(*tensors)",
  "column_stack": "lambda tensors: Tensor.column_stack(*tensors)",
  "cartesian_prod": "lambda *tensors: Tensor.cartesian_prod(*tensors)",
  "meshgrid|list_of_tensors": "lambda tensors, **kw: Tensor.meshgrid(*tensors, **kw)",
  "linalg.multi_dot": "lambda tensors: Tensor.multi_dot(*tensors)",
  "einsum": "lambda tensors, equation: Tensor.einsum(equation, *tensors)",
  # a method of the condition
  "where": "lambda x, condition, other: condition.where(x, other)",
  # extrema give no positions
  "max|reduction_with_dim": "lambda x, dim, keepdim=False: (x.max(dim, keepdim), x.argmax(dim, keepdim))",
  "min|reduction_with_dim": "lambda x, dim, keepdim=False: (x.min(dim, keepdim), x.argmin(dim, keepdim))",
  "max|binary": "lambda x, y: x.maximum(y)",
  "min|binary": "lambda x, y: x.minimum(y)",
  # the names of operators
  "remainder": "lambda x, y: x % y",
  "floor_divide": "lambda x, y: x // y",
  "true_divide": "lambda x, y: x / y",
  "__rdiv__": "lambda x, y: y / x",
  "rsub": "lambda x, y, alpha=1: (x * -1).add(y) if alpha == 1 else (x * -alpha).add(y)",
  "bitwise_left_shift": "lambda x, y: x << y",
  "bitwise_right_shift": "lambda x, y: x >> y",
  # dtypes are arguments of cast
  "byte": "lambda x, **kw: x.cast('uint8')",
  "char": "lambda x, **kw: x.cast('int8')",
  # a bool is `unbiased`
  "std|unbiased": "lambda x, unbiased: x.std(unbiased=unbiased)",
  "var|unbiased": "lambda x, unbiased: x.var(unbiased=unbiased)",
  "std_mean|unbiased": "lambda x, unbiased: x.std_mean(unbiased=unbiased)",
  "var_mean|unbiased": "lambda x, unbiased: x.var_mean(unbiased=unbiased)",
  # more than one tensor may be made at once there
  "atleast_1d": "lambda x: x.atleast_1d()",
  "atleast_2d": "lambda x: x.atleast_2d()",
  "atleast_3d": "lambda x: x.atleast_3d()",
  # all columns of Q, unless asked for less
  "qr": "lambda x, some=True: x.qr('reduced' if some else 'complete')",
  "linalg.qr": "lambda x, mode='reduced': x.qr(mode)",
  # P, L and U, where `lu` gives what `lu_factor` does
  "linalg.lu": "lambda x, pivot=True: Tensor.lu_unpack(*x.lu_factor(pivot))",
  "linalg.lu_solve": "lambda lu, pivots, b, **kw: b.lu_solve(lu, pivots, **kw)",
  # other names for the same
  "trapz": "lambda y, x=None, **kw: y.trapezoid(x, **kw)",
  "pinverse": "lambda x, rcond=1e-15: x.pinv(rcond)",
  "linalg.pinv|singular": "lambda a, b: (a @ b.mT).pinv()",
  "split_with_sizes": "lambda x, sizes, dim=0: x.split(sizes, dim)",
  "constant_pad_nd": "lambda x, pad, value=0: F.pad(x, pad, value=value)",
  "scalar_tensor": "lambda value, **kw: Tensor(value, **kw)",
  "linalg.norm": "lambda x, ord=None, dim=None, keepdim=False, dtype=None: "
  "x.matrix_norm(ord, dim or (-2, -1), keepdim, dtype) "
  "if ord is not None and (x.ndim == 2 if dim is None else isinstance(dim, tuple) and len(dim) == 2) "
  "else x.vector_norm(2 if ord is None else ord, dim, keepdim, dtype)",
  "linalg.lstsq": "lambda a, b, driver=None: a.lstsq(b)",
  "polygamma": "lambda x, n: x.polygamma(n)",
  # the samples have the table first
  "nn.functional.embedding": "lambda weight, index, **kw: F.embedding(index, weight, **kw)",
  "nn.functional.embedding_bag": "lambda weight, index, **kw: F.embedding_bag(index, weight, **kw)",
  "svd_lowrank": "lambda a, b, **kw: (a @ b.mT).svd_lowrank(**kw)",
  "pca_lowrank": "lambda a, b, **kw: (a @ b.mT).pca_lowrank(**kw)",
  "bernoulli": "lambda p: (p.rand_like() < p).cast(p.dtype)",
}

# PyTorch's positions, counts and sums of bool are int64, ours int32.
INT32 = frozenset(
  """
arange argmax argmin argsort argwhere bincount bucketize count_nonzero cummax cummin linalg.matrix_rank
linalg.matrix_rank|hermitian max|reduction_with_dim median min|reduction_with_dim multinomial nanmedian nansum
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d
nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.one_hot nonzero prod
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
searchsorted sort sum unique unique_consecutive tril_indices triu_indices trace cumsum cumprod cartesian_prod
""".split()
)


def _listed(text: str) -> dict[str, str]:
  """Name → reason, from paragraphs that begin with the reason and a colon."""
  out: dict[str, str] = {}
  for paragraph in text.strip().split("\n\n"):
    reason, _, names = paragraph.partition(":\n")
    out |= dict.fromkeys(names.split(), " ".join(reason.split()))
  return out


# Only shapes and dtypes are compared.
SHAPES_ONLY = _listed("""
random numbers are those of Threefry:
bernoulli multinomial randn randn_like rand_like nn.functional.rrelu nn.functional.dropout nn.functional.dropout2d
nn.functional.dropout3d nn.functional.alpha_dropout nn.functional.feature_alpha_dropout|with_train
nn.functional.feature_alpha_dropout|without_train

memory that nobody has written to:
empty empty_like new_empty
""")


BY_DESIGN = _listed("""
Tensor.gradient is the derivative of the graph; differences of neighbours are `diff`:
gradient

`to` takes a device or a dtype; there are no memory formats, and copies wait for nobody:
to

draws take the system's arguments, `Tensor.normal(*shape, mean=, std=)`, `uniform`, `randint`; none fills a tensor:
cauchy exponential geometric log_normal normal normal|in_place normal|number_mean uniform randint randint_like

strides and storage are not part of a tensor; as_strided reads the elements of the tensor itself in their order:
as_strided|partial_views as_strided_scatter empty_strided new_empty_strided empty_permuted resize_ resize_as_

a write is `assign`:
zero_

torch.svd is deprecated; ours is torch.linalg.svd:
svd

a failure is seen in the values, so there is no second function that returns a code for it:
linalg.cholesky_ex linalg.inv_ex linalg.solve_ex
""")

OUT_OF_SCOPE = _listed("""
complex numbers:
angle complex conj conj_physical resolve_conj resolve_neg view_as_real view_as_complex imag real polar cdouble cfloat
chalf nn.functional.silu|complex linalg.eig linalg.eigvals

Fourier transforms give complex numbers; windows go with them:
fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn fft.ifft fft.ifft2 fft.ifftn
fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.fftshift fft.ifftshift stft istft
signal.windows.hamming signal.windows.hann signal.windows.bartlett signal.windows.blackman signal.windows.cosine
signal.windows.exponential signal.windows.gaussian signal.windows.kaiser signal.windows.general_cosine
signal.windows.general_hamming signal.windows.nuttall

sparse, jagged and masked tensors:
sparse.sampled_addmm sparse.mm|reduce to_sparse _segment_reduce|lengths _segment_reduce|offsets masked.sum masked.prod
masked.cumsum masked.cumprod masked.amax masked.amin masked.argmax masked.argmin masked.mean masked.median masked.norm
masked.var masked.std masked.softmax masked.log_softmax masked.softmin masked.normalize masked.logaddexp
masked.logsumexp

PyTorch's internals: parts of public functions, their derivatives, copies instead of views, kernels of its own:
_softmax_backward_data native_group_norm native_layer_norm native_batch_norm _native_batch_norm_legit
_batch_norm_with_update _upsample_bilinear2d_aa max_pool2d_with_indices_backward torch._scaled_mm_v2 torch._scaled_mm
torch.ops.aten._safe_softmax.default torch.ops.aten._flash_attention_forward
torch.ops.aten._efficient_attention_forward _unsafe_masked_index _unsafe_masked_index_put_accumulate _chunk_cat
native_dropout_backward grid_sampler_2d grid_sampler_3d hash_tensor unsafe_chunk unsafe_split bmm|triton_optimized
addmm|decomposed alias_copy diagonal_copy expand_copy narrow_copy view_copy permute_copy slice split_with_sizes_copy
unbind_copy unfold_copy squeeze_copy unsqueeze_copy transpose_copy t_copy as_strided_copy nonzero_static
jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args jiterator_binary_return_by_ref
jiterator_2inputs_2outputs nn.functional.linear_cross_entropy nn.functional.linear_cross_entropy|chunked
nn.functional.linear_cross_entropy|chunked_none

made for the interface of LAPACK and not for users of tensors:
geqrf ormqr linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve triangular_solve

shapes, and no tensors:
broadcast_shapes
""")

# Left out by default: loops of many kernels (singular values), or samples that take long to make.
SLOW = frozenset(
  """
linalg.cond norm|nuc pinverse mode linalg.matrix_rank linalg.matrix_rank|hermitian linalg.pinv linalg.pinv|hermitian
linalg.pinv|singular linalg.svd linalg.svdvals linalg.matrix_norm linalg.norm linalg.norm|subgradients_at_zero
linalg.solve_triangular nn.functional.max_unpool1d nn.functional.max_unpool1d|grad nn.functional.max_unpool2d
nn.functional.max_unpool2d|grad nn.functional.max_unpool3d nn.functional.max_unpool3d|grad nn.functional.max_pool2d
nn.functional.grid_sample index_reduce|prod linalg.lstsq linalg.lstsq|grad_oriented logspace logspace|tensor_overload
linalg.tensorinv linalg.tensorsolve logdet linalg.slogdet matrix_exp nn.functional.max_pool3d nn.functional.max_pool1d
""".split()
)

# What nobody has written yet.
MISSING: frozenset[str] = frozenset()

# Operators of which these samples are left out: why, and a test of the sample.
_FRACTIONS = (
  "a fraction of integers is no integer",
  "dtype == 'int64' and any(isinstance(v, float) for v in kwargs.values())",
)
_AVERAGES = ("the mean of integers is a float", "dtype == 'int64'")
_GAMMAS = (
  "derivatives of digamma above the first",
  "1 < max(v for v in (*args, *kwargs.values()) if isinstance(v, int))",
)
_ROUNDED = (
  "integers are rounded once, at the end",
  "'int' in str(kwargs.get('dtype')) and any(v != int(v) for v in (input, *args[:2]))",
)
_LISTS = ("one tensor at a time", "isinstance(input, (list, tuple))")
LEFT_OUT = {
  "addmm": _FRACTIONS,
  "addmv": _FRACTIONS,
  "addr": _FRACTIONS,
  "addbmm": _FRACTIONS,
  "baddbmm": _FRACTIONS,
  "nn.functional.avg_pool1d": _AVERAGES,
  "nn.functional.avg_pool2d": _AVERAGES,
  "nn.functional.avg_pool3d": _AVERAGES,
  "nn.functional.local_response_norm": _AVERAGES,
  "polygamma": _GAMMAS,
  "special.polygamma": _GAMMAS,
  "atleast_1d": _LISTS,
  "atleast_2d": _LISTS,
  "atleast_3d": _LISTS,
  "nn.functional.scaled_dot_product_attention": ("dropout is random", "kwargs.get('dropout_p', 0) > 0"),
  "arange": _ROUNDED,
  "linspace": _ROUNDED,
  "linalg.qr": ("R without Q is R", "'r' in (*args, kwargs.get('mode'))"),
  "logspace": _ROUNDED,
  "gather": ("an index of nothing has as many axes, too", "args[1].numel() == 0 and args[1].ndim != input.ndim"),
  "square": ("bool times bool is bool", "dtype == 'bool'"),
  "bincount": ("sums have the dtype of the weights", "dtype == 'int64' and bool(kwargs.get('weights') is not None)"),
  "nn.functional.triplet_margin_with_distance_loss": (
    "the sample brings a function of PyTorch's tensors",
    "kwargs.get('distance_function') is not None",
  ),
  "nn.functional.embedding_bag": (
    "rows are not changed by looking at them, and gradients are not scaled",
    "bool(kwargs.keys() & {'max_norm', 'scale_grad_by_freq'})",
  ),
  "nn.functional.multi_head_attention_forward": ("dropout is random", "args[9] > 0 and kwargs['training']"),
  "svd_lowrank": ("a matrix of full rank is projected at random", "kwargs.get('M') is not None"),
  "nn.functional.fractional_max_pool2d": ("windows begin at random", "kwargs.get('_random_samples') is None"),
  "nn.functional.fractional_max_pool3d": ("windows begin at random", "kwargs.get('_random_samples') is None"),
  "nn.functional.embedding": (
    "rows are not changed by looking at them, and gradients are not scaled",
    "bool(kwargs.keys() & {'max_norm', 'scale_grad_by_freq'})",
  ),
}

# Operators of which only first derivatives are compared, and why.
FIRST_ONLY = {
  "linalg.norm|subgradients_at_zero": "second derivatives of a norm at 0 are NaN in PyTorch, and 0 here",
}

VIEWS = frozenset("as_strided bool flip fliplr flipud float long ravel reshape reshape_as rot90 unfold".split())
"""Operators whose results share memory with inputs here where PyTorch's do not, or the other way round: reversed axes
are views, as in NumPy, and so is what is reshaped from another order; windows that overlap are not."""

# What is compared of results where more than one is right, as a function of both sides' results.
_VALUES = "lambda results: results[:1]"  # equal elements are in more than one place
COMPARED = {
  "kthvalue": _VALUES,
  "topk": _VALUES,
  "mode": _VALUES,
  "linalg.lstsq": _VALUES,
  # eigenvectors and singular vectors have a sign
  "svd_lowrank": "lambda results: [results[0] @ results[2].mT, results[1]]",
  "pca_lowrank": "lambda results: [results[0] @ results[2].mT, results[1]]",
  "linalg.eigh": "lambda results: [results[0], results[1].abs()]",
  "linalg.svd": "lambda results: [results[0][..., : results[1].shape[-1]].abs(), results[1], "
  "results[2][..., : results[1].shape[-1], :].abs()]",
}

# Operators whose derivatives are not compared, and why.
_LAST = "windows that overlap name a position twice: the gradient goes to what was written last"
FORWARD_ONLY = {
  "cholesky_inverse": "only the triangle that is read has a gradient",
  "cholesky_solve": "only the triangle that is read has a gradient",
  "linalg.pinv|hermitian": "only the triangle that is read has a gradient",
  "nn.functional.ctc_loss": "PyTorch's derivative is already that of what a log_softmax was made of",
  "nn.functional.multi_head_attention_forward": "the samples with derivatives have dropout, which is random",
  "nn.functional.max_unpool1d": _LAST,
  "nn.functional.max_unpool2d": _LAST,
  "nn.functional.max_unpool3d": _LAST,
}

# Relative and absolute differences that are allowed, where they are not those of `tolerance`.
TOLERANCES = {
  # second derivatives that are 0 are left with what rounding left
  "cov": (1e-4, 1e-4),
  "logcumsumexp": (1e-4, 5e-4),  # next to 10000, those of PyTorch are rounding only
  "nn.functional.layer_norm": (1e-4, 1e-4),
  "nn.functional.normalize": (1e-4, 1e-4),
  "nn.functional.scaled_dot_product_attention": (1e-4, 1e-4),
  "matrix_exp": (1e-2, 1e-3),
  "nn.functional.conv_transpose3d": (1e-4, 1e-4),
}


# What PyTorch refuses and we take, and why. For all operators that is a Python number in the place of an operand.
TAKEN = _listed("""
a range that leads away from its end is empty:
arange

values are not looked at before they are needed, and what makes no sense gives no sense:
cov multinomial

an index outside reads 0 and writes nothing:
gather scatter scatter_add

dtypes promote:
nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d

of sizes 0 there is nothing to do:
nn.functional.max_pool1d nn.functional.max_pool3d

the value broadcasts:
masked_fill

bool counts as an integer:
narrow

the mean of integers is a float:
mean

the opposite of a bool is its negation:
neg
""")


# Operators of elements that give something else for infinities, NaN and numbers next to the limits of float32, and why.
EXTREMES = _listed("""
those of PyTorch are NaN where the quotient is more than a float holds:
fmod remainder __rmod__

powers are made of a logarithm, whose rounding passes the largest number:
pow __rpow__

the sign of NaN is NaN:
sign sgn

a float that the integer cannot hold is any integer:
int long

2 x - 1 does not see the least numbers:
special.ndtri

infinities have the limit as their value, where PyTorch has NaN:
i0 special.i1 special.modified_bessel_i0 special.modified_bessel_i1 special.airy_ai igamma igammac special.zeta

so have they, and PyTorch rounds the phase of large numbers:
special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1

what leaves the range of numbers is infinite in one and NaN in the other, where recurrences subtract infinities:
special.chebyshev_polynomial_t special.chebyshev_polynomial_u
special.chebyshev_polynomial_v special.chebyshev_polynomial_w
special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w
special.laguerre_polynomial_l special.legendre_polynomial_p
""")


def full_name(op: Any) -> str:
  """Name and variant of an OpInfo."""
  return f"{op.name}|{op.variant_test_name}" if op.variant_test_name else str(op.name)


def resolve(name: str) -> Callable[..., Any] | None:
  """What computes an operator with our tensors; None if nothing does."""
  plain = name.partition("|")[0]
  text = WRITTEN.get(name, WRITTEN.get(plain))
  if text is not None:
    found: Callable[..., Any] = eval(text, {"Tensor": Tensor, "F": F})
    return found
  if plain.startswith("nn.functional."):
    return getattr(F, plain.rpartition(".")[2], None)
  method = getattr(Tensor, plain.rpartition(".")[2], None)
  if isinstance(method, property):
    return method.fget
  return method if callable(method) else None


def of(table: dict[str, Any], name: str) -> Any:
  """The entry for an operator: that of the variant, or of its name; None if there is neither."""
  return table.get(name, table.get(name.partition("|")[0]))


def why_left_out(name: str, sample: Any, dtype: str) -> str | None:
  """Why a sample is left out, if it is."""
  rule = of(LEFT_OUT, name)
  if rule is None:
    return None
  reason, condition = rule
  known = {"input": sample.input, "args": sample.args, "kwargs": sample.kwargs, "dtype": dtype}
  return str(reason) if eval(condition, {}, known) else None
