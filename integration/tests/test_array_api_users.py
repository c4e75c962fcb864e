"""Libraries written for the Array API standard, on tensors: scikit-learn and SciPy, results compared with NumPy's."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

# SciPy reads its variable when it is imported
PROGRAM = """
import numpy as np
import scipy.special, scipy.stats, sklearn.metrics, sklearn.preprocessing
from sklearn.metrics import pairwise
from tiny_tensor import Tensor

x = np.random.default_rng(0).standard_normal((20, 4))
labels = (x[:, 0] > 0.3).astype(np.int32)
CALLS = {
  "zscore": lambda a, y: scipy.stats.zscore(a),
  "logsumexp": lambda a, y: scipy.special.logsumexp(a, axis=1),
  "scaler": lambda a, y: sklearn.preprocessing.StandardScaler().fit_transform(a),
  "kernel": lambda a, y: pairwise.rbf_kernel(a),
  "accuracy": lambda a, y: sklearn.metrics.accuracy_score(y, y[::-1]),
  "r2": lambda a, y: sklearn.metrics.r2_score(a[:, 0], a[:, 1]),
}
for name, call in CALLS.items():
  expected = call(x, labels)
  with sklearn.config_context(array_api_dispatch=True):
    got = call(Tensor(x), Tensor(labels))
  assert isinstance(got, Tensor) == isinstance(expected, (np.ndarray, np.float64)), (name, got)
  np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-9, atol=1e-7, err_msg=name)
  print(name)
"""


def test_scikit_learn_and_scipy() -> None:
  if find_spec("array_api_compat") is None:
    pytest.skip("array_api_compat is not installed")
  done = subprocess.run(
    [sys.executable, "-c", PROGRAM], env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  assert len(done.stdout.split()) == 6
