"""What the site is put together of: pages made of READMEs and of sources, links between them. CI builds it as well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents.families import families, family_table
from documents.markdown import anchors, links
from documents.operations import operation_table
from documents.reference import exports, modules
from documents.reference import page as page_of_module
from documents.repository import DOCS, ROOT
from documents.site import assemble, page, pages

from tiny_tensor import Tensor
from tiny_uop import Ops


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
  folder = tmp_path_factory.mktemp("site")
  assemble(folder)
  return folder


def test_links_of_pages_lead_to_pages(site: Path) -> None:
  made = sorted((site / "pages").rglob("*.md"))
  assert len(made) > 25
  broken = []
  for path in made:
    for line, target in links(path.read_text(encoding="utf-8")):
      place, _, anchor = target.partition("#")
      goal = (path.parent / place).resolve() if place else path
      if "://" in target or target.startswith("mailto:"):
        continue
      if not goal.is_file() or (anchor and anchor not in anchors(goal.read_text(encoding="utf-8"))):
        broken.append(f"{path.relative_to(site)}:{line}: {target}")
  assert not broken, "\n".join(broken)


def test_every_page_is_in_the_navigation(site: Path) -> None:
  text = (site / "mkdocs.yml").read_text(encoding="utf-8")
  listed = re.findall(r"[\w./-]+\.md", text.split("\nnav:\n")[1])
  assert sorted(listed) == sorted(
    path.relative_to(site / "pages").as_posix() for path in (site / "pages").rglob("*.md")
  )
  assert "NAVIGATION" not in text and "SOURCES" not in text


def test_no_mark_of_ours_is_left(site: Path) -> None:
  for path in (site / "pages").rglob("*.md"):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"^ *<!-- (first|not run|needs|insert):", text, re.MULTILINE), path
    assert not re.search(r"^ *```\w+ [^{]", text, re.MULTILINE), path


def test_pages_made_of_sources(site: Path) -> None:
  operations = (site / "pages" / "operations.md").read_text(encoding="utf-8")
  assert all(f"| `{op.name}` |" in operations for op in Ops)
  assert "| `RESHAPE` |" in operation_table() and "| tensor |" in operation_table()
  packages = (site / "pages" / "packages" / "index.md").read_text(encoding="utf-8")
  assert "| [tiny-sched](tiny-sched.md) | The scheduler" in packages and " | tiny-uop |" in packages
  environment = (site / "pages" / "environment.md").read_text(encoding="utf-8")
  assert "| `CPU_COUNT` | int | 0 |" in environment and "| `NO_COLOR` |" in environment
  assert {f"reference/{name}.md" for name in ("index", *modules())} == {
    path.relative_to(site / "pages").as_posix() for path in (site / "pages" / "reference").iterdir()
  }


def test_a_page_is_rewritten_for_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  source = DOCS / "index.md"
  text = (
    "See [the IR](../packages/tiny-uop/README.md#rules), [on PyPI](https://pypi.org/project/tiny-sched/#contract),\n"
    "[benchmarks](../integration/bench) and [`[no](link)`](quickstart.md):\n* one\n  * two\n\n"
    "<!-- first: echo -->\n```sh\ntrue\n```\n```text output\n```\n```python a/b.py\n```\n"
  )
  monkeypatch.setattr(Path, "read_text", lambda self, encoding=None: text)
  expected = (
    "See [the IR](packages/tiny-uop.md#rules), [on PyPI](packages/tiny-sched.md#contract),\n"
    "benchmarks and [`[no](link)`](quickstart.md):\n\n* one\n    * two\n\n"
    '```sh\ntrue\n```\n```{ .text .output }\n```\n```{ .python title="a/b.py" }\n```\n'
  )
  assert page(source) == expected
  assert "[benchmarks](https://example.org/tiny/blob/main/integration/bench)" in page(
    source, "https://example.org/tiny"
  )


def test_every_document_of_the_repository_is_a_page() -> None:
  assert ROOT / "CONTRIBUTING.md" in pages() and DOCS / "tutorial.md" in pages()
  assert len(set(pages().values())) == len(pages())


def test_tensor_by_family() -> None:
  """Every public method and property that a class of the tower defines, under what its file is about."""
  found = families()
  members = [name for family in found for name in family.members]
  assert {name for name in vars(Tensor) if not name.startswith("_") and callable(vars(Tensor)[name])} <= set(members)
  assert {"relu", "reshape", "shape", "backward", "to"} <= set(members) and len(members) > 300
  assert all(hasattr(Tensor, name) for name in members) and all(family.about for family in found)
  assert family_table().count("\n| ") == sum(bool(family.members) for family in found)


def test_the_reference_has_an_index_and_methods_that_are_rows(site: Path) -> None:
  index = (site / "pages" / "reference" / "index.md").read_text(encoding="utf-8")
  assert "## [`tiny_tensor`](tiny_tensor.md)" in index and "[`Tensor`][tiny_tensor.Tensor]" in index
  assert index.index("tiny_tensor.md") < index.index("tiny_sched.md") < index.index("tiny_codegen.md")
  tensor = (site / "pages" / "reference" / "tiny_tensor.md").read_text(encoding="utf-8")
  assert "{ #tiny_tensor.Tensor.half }" in tensor and "Cast to float16." in tensor


def test_public_modules() -> None:
  names = modules()
  assert {"tiny_uop", "tiny_uop.spec", "tiny_tensor.nn.optim", "tiny_runtime.contract"} <= set(names)
  assert exports("tiny_tensor")[1]["UOp"] == "tiny_uop" and "Tensor" in exports("tiny_tensor")[0]


@pytest.mark.parametrize(
  ("module", "made"),
  [
    ("tiny_tensor.nn", "MaxPool2d(kernel_size: Sizes, stride: Sizes | None = None"),
    ("tiny_tensor.nn.functional", "conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None"),
    ("tiny_tensor.array_api", "exp(x: Array, /) -> Array"),
  ],
)
def test_names_that_tables_make_are_on_their_page(module: str, made: str) -> None:
  text, names = page_of_module(module), exports(module)[0]
  assert len(names) > 50 and made in text
  for name in names:
    assert f"        - {name}\n" in text or f"## `{name}` {{ #{module}.{name} }}" in text
