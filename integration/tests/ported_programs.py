"""Programs as people write them for PyTorch, and what a port changes in them: docs/from-pytorch.md, as patterns.

Each program is text: a model, and `train(model, data, path)`, which gives the losses of its steps and leaves its state
in the file `path` half-way, with which it goes on.
"""

import re

# what is written here, and what for it there
CHANGES = (
  (r"import torch\nfrom torch import nn\n", "from tiny_tensor import Tensor, nn\nfrom tiny_tensor.nn import state\n"),
  (r"import torch\.nn\.functional", "import tiny_tensor.nn.functional"),
  (r"torch\.optim\.lr_scheduler\.", "nn.schedule."),
  (r"torch\.optim\.", "nn.optim."),
  (r"nn\.utils\.clip_grad_norm_", "nn.clip_grad_norm_"),
  # modules are any objects that can be called
  (r"\(nn\.Module\)", ""),
  (r" *super\(\)\.__init__\(\)\n", ""),
  (r"def forward\(", "def __call__("),
  (r"nn\.ModuleList\((.*)\)", r"\1"),
  (r"nn\.Parameter\((.*)\)", r"\1"),
  (r"(\w+)\.parameters\(\)", r"state.get_parameters(\1)"),
  (r"(\w+)\.load_state_dict\((.*)\)\n", r"state.load_state_dict(\1, \2, verbose=False)\n"),
  (r"(\w+)\.state_dict\(\)", r"state.get_state_dict(\1)"),
  (r"torch\.save\(", "state.safe_save("),
  (r"torch\.load\(", "state.safe_load("),
  # functions are methods, and several tensors are arguments
  (r"torch\.cat\(\[(.*)\], dim", r"Tensor.cat(\1, dim"),
  (r"torch\.(zeros|ones|arange)\(", r"Tensor.\1("),
)


def ported(program: str) -> str:
  """The program for tiny-tensor."""
  for pattern, replacement in CHANGES:
    program = re.sub(pattern, replacement, program)
  return program


VAE = """
import torch
from torch import nn
import torch.nn.functional as F


class VAE(nn.Module):
  def __init__(self, size=20, hidden=16, latent=3):
    super().__init__()
    self.encoder = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2))
    self.mu = nn.Linear(hidden, latent)
    self.logvar = nn.Linear(hidden, latent)
    self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, size), nn.Sigmoid())

  def forward(self, x, noise):
    h = self.encoder(x.view(x.size(0), -1))
    mu, logvar = self.mu(h), self.logvar(h)
    z = mu + (0.5 * logvar).exp() * noise
    return self.decoder(z), mu, logvar


def loss_function(out, x, mu, logvar):
  bce = F.binary_cross_entropy(out, x.view(out.shape), reduction="sum")
  kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()
  return (bce + kld) / x.size(0)


def make():
  return VAE()


def train(model, data, path):
  images, noise = data
  optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
  losses = []
  for step in range(8):
    optimizer.zero_grad()
    batch = images[4 * step : 4 * step + 4]
    out, mu, logvar = model(batch, noise[step])
    loss = loss_function(out, batch, mu, logvar)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step == 3:
      torch.save(model.state_dict(), path)
      model.load_state_dict(torch.load(path))
  return losses
"""

LANGUAGE = """
import torch
from torch import nn
import torch.nn.functional as F


class LanguageModel(nn.Module):
  def __init__(self, vocabulary=11, width=8, hidden=12):
    super().__init__()
    self.embedding = nn.Embedding(vocabulary, width)
    self.rnn = nn.GRU(width, hidden, num_layers=2, batch_first=True)
    self.norm = nn.LayerNorm(hidden)
    self.head = nn.Linear(hidden, vocabulary)

  def forward(self, tokens, state=None):
    x = self.embedding(tokens)
    out, state = self.rnn(x, state)
    return self.head(self.norm(out)), state


def make():
  return LanguageModel()


def train(model, data, path):
  tokens, lengths = data
  inside = torch.arange(tokens.shape[1])[None, :] < lengths[:, None]
  optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
  scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
  losses = []
  for step in range(8):
    optimizer.zero_grad()
    logits, state_ = model(tokens[:, :-1])
    targets = tokens[:, 1:].masked_fill(~inside[:, 1:], -100)
    loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1).long(), ignore_index=-100)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    scheduler.step()
    losses += [loss.item(), norm.item()]
    if step == 3:
      torch.save(model.state_dict(), path)
      model.load_state_dict(torch.load(path))
  correct = (logits.argmax(dim=-1) == targets) & (targets != -100)
  return losses + [correct.sum().item()]
"""

VIT = """
import torch
from torch import nn
import torch.nn.functional as F


class Attention(nn.Module):
  def __init__(self, dim, heads):
    super().__init__()
    self.heads = heads
    self.qkv = nn.Linear(dim, 3 * dim)
    self.proj = nn.Linear(dim, dim)

  def forward(self, x):
    B, N, C = x.shape
    qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    x = F.scaled_dot_product_attention(q, k, v)
    return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
  def __init__(self, dim, heads):
    super().__init__()
    self.norm1 = nn.LayerNorm(dim)
    self.attn = Attention(dim, heads)
    self.norm2 = nn.LayerNorm(dim)
    self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

  def forward(self, x):
    x = x + self.attn(self.norm1(x))
    return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
  def __init__(self, size=8, patch=4, dim=12, heads=3, depth=2, classes=3):
    super().__init__()
    self.patch = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
    self.cls = nn.Parameter(torch.zeros(1, 1, dim))
    self.pos = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, dim))
    self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
    self.norm = nn.LayerNorm(dim)
    self.head = nn.Linear(dim, classes)

  def forward(self, x):
    x = self.patch(x).flatten(2).transpose(1, 2)
    x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
    for block in self.blocks:
      x = block(x)
    return self.head(self.norm(x)[:, 0])


def make():
  return ViT()


def train(model, data, path):
  images, labels = data
  criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
  scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 3, 1.0))
  losses = []
  for step in range(6):
    logits = model(images)
    loss = criterion(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if step == 2:
      torch.save(model.state_dict(), path)
      model.load_state_dict(torch.load(path))
  return losses + [(logits.argmax(1) == labels).float().mean().item()]
"""

PROGRAMS = {"VAE": VAE, "language model": LANGUAGE, "vision transformer": VIT}


# *** programs as people write them for tinygrad: imports change, and nothing else ***

# what is imported there, and what for it here: docs/from-tinygrad.md
IMPORTS = (
  (r"from tinygrad import ", "from tiny_tensor import "),
  (r"from tinygrad\.nn\.(\w+) import ", r"from tiny_tensor.nn.\1 import "),
  (r"from tinygrad\.nn import ", "from tiny_tensor.nn import "),
  (r"from tinygrad\.helpers import ", "from tiny_tensor import "),
  (r"from tinygrad\.engine\.realize import ", "from tiny_runtime import "),
  (r"from tinygrad\.device import ", "from tiny_runtime import "),
  (r"from tinygrad\.(?:dtype|uop\.ops) import ", "from tiny_uop import "),
)


def imported(program: str) -> str:
  """The program with our imports."""
  for pattern, replacement in IMPORTS:
    program = re.sub(rf"^{pattern}", replacement, program, flags=re.MULTILINE)
  return program


CONVNET = """
from tinygrad import Tensor, TinyJit, GlobalCounters, nn
from tinygrad.helpers import getenv

BS = getenv("BS", 16)


class Model:
  def __init__(self):
    self.layers = [
      nn.Conv2d(1, 4, 3), Tensor.relu,
      nn.Conv2d(4, 4, 3), Tensor.relu,
      nn.BatchNorm(4), Tensor.max_pool2d,
      nn.Conv2d(4, 8, 2), Tensor.relu,
      nn.BatchNorm(8), Tensor.max_pool2d,
      lambda x: x.flatten(1), nn.Linear(8 * 2 * 2, 4),
    ]

  def __call__(self, x: Tensor) -> Tensor:
    return x.sequential(self.layers)


def main(images, labels):
  Tensor.manual_seed(1)
  X_train, Y_train = Tensor(images), Tensor(labels)
  model = Model()
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)

  @TinyJit
  @Tensor.train()
  def train_step() -> Tensor:
    opt.zero_grad()
    samples = Tensor.randint(BS, high=X_train.shape[0])
    loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
    return loss.realize(*opt.schedule_step())

  @TinyJit
  def get_test_acc() -> Tensor:
    return ((model(X_train).argmax(axis=1) == Y_train).mean() * 100).realize()

  losses = []
  for i in range(40):
    GlobalCounters.reset()
    losses.append(train_step().item())
    if i % 20 == 19:
      test_acc = get_test_acc().item()
  return {"losses": losses, "accuracy": test_acc, "kernels": GlobalCounters.kernel_count}
"""

TRANSFORMER = """
from tinygrad import Tensor, TinyJit, Variable, UOp, nn

MAX_CONTEXT = 10


class Attention:
  def __init__(self, dim, n_heads):
    self.c_attn = nn.Linear(dim, 3 * dim, bias=True)
    self.c_proj = nn.Linear(dim, dim, bias=True)
    self.n_heads, self.dim, self.head_dim = n_heads, dim, dim // n_heads

  def __call__(self, x, start_pos, mask):
    xqkv = self.c_attn(x)
    xq, xk, xv = [xqkv.shrink((None, None, (i * self.dim, (i + 1) * self.dim))) for i in range(3)]
    xq, xk, xv = [t.reshape(t.shape[0], t.shape[1], self.n_heads, self.head_dim) for t in (xq, xk, xv)]
    bsz, seqlen, _, _ = xq.shape
    if not hasattr(self, "cache_kv"):
      self.cache_kv = Tensor.zeros(2, bsz, MAX_CONTEXT, self.n_heads, self.head_dim).contiguous().realize()
    now = (start_pos, start_pos + seqlen)
    self.cache_kv.shrink((None, None, now, None, None)).assign(Tensor.stack(xk, xv)).realize()
    keys = self.cache_kv[0].shrink((None, (0, start_pos + seqlen), None, None))
    values = self.cache_kv[1].shrink((None, (0, start_pos + seqlen), None, None))
    xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
    out = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
    return self.c_proj(out.reshape(bsz, seqlen, self.dim))


class Block:
  def __init__(self, dim, n_heads, norm_eps=1e-5):
    self.attn = Attention(dim, n_heads)
    self.c_fc, self.c_fc_proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
    self.ln_1, self.ln_2 = nn.LayerNorm(dim, norm_eps), nn.LayerNorm(dim, norm_eps)

  def __call__(self, x, start_pos, mask):
    h = x + self.attn(self.ln_1(x), start_pos, mask)
    return (h + self.c_fc_proj(self.c_fc(self.ln_2(h)).gelu())).contiguous()


class Transformer:
  def __init__(self, dim=8, n_heads=2, n_layers=2, vocab_size=11):
    self.wte = nn.Embedding(vocab_size, dim)
    self.wpe = nn.Embedding(MAX_CONTEXT, dim)
    self.h = [Block(dim, n_heads) for _ in range(n_layers)]
    self.ln_f = nn.LayerNorm(dim)
    self.lm_head = nn.Linear(dim, vocab_size, bias=False)
    self.forward_jit = TinyJit(self.forward)

  def forward(self, tokens, start_pos):
    if not hasattr(self, "allpos"):
      self.allpos = Tensor.arange(0, MAX_CONTEXT).reshape(1, -1).realize()
    seqlen = tokens.shape[1]
    tok_emb = self.wte(tokens)
    selected_pos = self.allpos.shrink((None, (start_pos, start_pos + seqlen)))
    h = tok_emb + self.wpe(selected_pos)
    mask = Tensor.full((1, 1, seqlen, start_pos + seqlen), float("-inf")).triu(start_pos + 1) if seqlen > 1 else None
    for layer in self.h:
      h = layer(h, start_pos, mask)
    logits = self.lm_head(self.ln_f(h))[:, -1, :]
    return logits.softmax().realize(), logits.argmax(-1, keepdim=True).realize()

  def __call__(self, tokens, start_pos):
    forward = self.forward_jit if tokens.shape[0:2] == (1, 1) and start_pos != 0 else self.forward
    return forward(tokens, start_pos)


def main(prompt):
  Tensor.manual_seed(7)
  model = Transformer()
  toks, probabilities = list(prompt), []
  start_pos = 0
  for _ in range(MAX_CONTEXT - len(prompt)):
    if start_pos == 0:
      tokens, position = Tensor([toks]), 0
    else:
      tokens, position = Tensor([toks[start_pos:]]), Variable("start_pos", 1, MAX_CONTEXT - 1).bind(start_pos)
    probs, tok = model(tokens.realize(), position)
    probabilities.append(probs.tolist()[0])
    start_pos = len(toks)
    toks.append(tok.item())
  # the same without what is kept: all positions at once, by a model that has the same weights and no caches
  fresh = Transformer()
  weights = {k: v for k, v in nn.state.get_state_dict(model).items() if "cache_kv" not in k and k != "allpos"}
  nn.state.load_state_dict(fresh, weights, verbose=False)
  again = fresh(Tensor([toks[:-1]]), 0)[0].tolist()[0]
  return {"tokens": toks, "probabilities": probabilities, "again": again}
"""

SAVED = """
from tinygrad import Tensor, dtypes, nn
from tinygrad.nn.state import safe_save, safe_load, get_state_dict, load_state_dict, get_parameters


class Net:
  def __init__(self):
    self.l1, self.l2 = nn.Linear(12, 8, bias=False), nn.Linear(8, 3, bias=False)

  def __call__(self, x):
    return self.l2(self.l1(x).leaky_relu())


def sparse_categorical_crossentropy(self, Y, ignore_index=-1):
  loss_mask = Y != ignore_index
  y_counter = Tensor.arange(self.shape[-1], dtype=dtypes.int32).unsqueeze(0).expand(Y.numel(), self.shape[-1])
  y = (y_counter == Y.flatten().reshape(-1, 1)).where(-1.0, 0) * loss_mask.reshape(-1, 1)
  y = y.reshape(*Y.shape, self.shape[-1])
  return self.log_softmax().mul(y).sum() / loss_mask.sum()


def main(x, y, path):
  net = Net()
  opt = nn.optim.SGD([net.l1.weight, net.l2.weight], lr=0.3, momentum=0.5)
  with Tensor.train():
    for step in range(25):
      batch, labels = Tensor(x, requires_grad=False), Tensor(y)
      out = net(batch)
      loss = sparse_categorical_crossentropy(out, labels)
      opt.zero_grad()
      loss.backward()
      opt.step()
  pred = net(Tensor(x)).argmax(axis=-1).numpy()
  safe_save(get_state_dict(net), path)
  other = Net()
  load_state_dict(other, safe_load(path), verbose=False)
  half = {k: v.half() for k, v in get_state_dict(net).items()}
  safe_save(half, path)
  third = Net()
  load_state_dict(third, safe_load(path), strict=True, verbose=False)
  params = sum(p.numel() for p in get_parameters(other))
  same = (other(Tensor(x)) - net(Tensor(x))).abs().max().item()
  close = (third(Tensor(x)) - net(Tensor(x))).abs().max().item()
  return {"accuracy": (pred == y).mean(), "params": params, "same": same, "close": close, "loss": loss.item()}
"""

INSPECTED = """
from tinygrad import Tensor, Device, GlobalCounters, Context, dtypes
from tinygrad.engine.realize import run_schedule
from tinygrad.device import Buffer
from tinygrad.uop.ops import Ops, UOp


def main():
  a = Tensor.ones(4, 4).contiguous().realize()
  b = Tensor.arange(16).reshape(4, 4).cast(dtypes.float).realize()
  c = ((a + b).relu() @ b).sum(axis=0)
  d = (c * 2).contiguous()
  sched = c.schedule(d)
  kernels = [si.ast for si in sched if si.ast.op is Ops.SINK]
  outputs = [si.bufs[0] for si in sched]
  assert all(isinstance(buf, Buffer) and buf.device == Device.DEFAULT for buf in outputs)
  names = [m.name for si in sched for m in si.metadata]
  GlobalCounters.reset()
  with Context(DEBUG=0):
    sched[0].lower().run()
    run_schedule(sched[1:])
  count = GlobalCounters.kernel_count
  timed = [si.run(wait=True) for si in c.detach().mul(3).schedule()]
  linear = (a * 2).schedule_linear()
  assert isinstance(linear, UOp) and linear.op is Ops.LINEAR
  return {"values": c.tolist(), "twice": d.tolist(), "kernels": len(kernels), "ran": count, "names": names,
          "timed": all(t > 0 for t in timed), "left": len(c.schedule())}
"""

BY_HAND = """
from tinygrad import Tensor, TinyJit, dtypes
import math


def main(x, y):
  Tensor.manual_seed(3)
  Tensor.training = True
  w1 = Tensor.scaled_uniform(2, 16, requires_grad=True)
  b1 = Tensor.zeros(16, requires_grad=True)
  w2 = Tensor.kaiming_uniform(16, 1, a=math.sqrt(5), requires_grad=True)
  X, Y = Tensor(x), Tensor(y).reshape(-1, 1)
  losses = []
  for step in range(60):
    pred = (X.dot(w1) + b1).tanh().linear(w2).sigmoid()
    loss = pred.binary_crossentropy(Y)
    for p in (w1, b1, w2):
      p.grad = None
    loss.backward()
    for p in (w1, b1, w2):
      p.assign(p.detach() - 2.0 * p.grad).realize()
    losses.append(loss.item())
  Tensor.training = False
  Tensor.no_grad = True
  infer = TinyJit(lambda t: ((t.dot(w1) + b1).tanh().linear(w2).sigmoid() > 0.5).cast(dtypes.int32).realize())
  out = [infer(X).flatten().tolist() for _ in range(3)]
  Tensor.no_grad = False
  return {"losses": losses, "right": [sum(int(a == b) for a, b in zip(o, y)) / len(y) for o in out]}
"""

SHARDED = """
from tinygrad import Tensor, Device, TinyJit, nn

GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(2))


class Model:
  def __init__(self):
    self.l1, self.l2 = nn.Linear(4, 6), nn.Linear(6, 2)

  def __call__(self, x):
    return self.l2(self.l1(x).relu())


def main(x, y):
  Tensor.manual_seed(5)
  model = Model()
  for k, t in nn.state.get_state_dict(model).items():
    t.to_(GPUS)
  opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=0.05)

  @TinyJit
  def train_step(X, Y):
    with Tensor.train():
      opt.zero_grad()
      loss = model(X).sparse_categorical_crossentropy(Y).backward()
      opt.step()
      return loss.realize()

  losses = []
  for step in range(12):
    X, Y = Tensor(x).shard(GPUS, axis=0).realize(), Tensor(y).shard(GPUS, axis=0).realize()
    losses.append(train_step(X, Y).item())
  return {"losses": losses, "devices": model.l1.weight.device}
"""

TINYGRAD_PROGRAMS = {
  "convnet": CONVNET, "transformer": TRANSFORMER, "saved": SAVED, "inspected": INSPECTED, "by hand": BY_HAND,
  "sharded": SHARDED,
}  # fmt: skip
