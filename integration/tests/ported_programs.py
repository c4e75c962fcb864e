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
