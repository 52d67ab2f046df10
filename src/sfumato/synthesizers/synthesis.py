"""Make synthetic data: rows from a table, images from images."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from sfumato.budget.ledger.ledger import Ledger
from sfumato.data.io.images import are_images
from sfumato.data.recipe import Recipe
from sfumato.data.release import Release
from sfumato.errors import OptionError, did_you_mean

__all__ = ["makes_images", "run_recipe", "synthesize"]

_MNIST = "mnist"


def synthesize(
    data: Any,
    epsilon: float | None = None,
    *,
    delta: float = 1e-5,
    method: Any = None,
    rows: int | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    seed: int | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Release:
    """Learn a generator of synthetic rows or images with differential privacy, and draw from it.

    Parameters
    ----------
    data : Table, frame, Images, path or name
        A table; "adult" and "nursery" are built in, and columns with the role of an identifier are left out. Or
        labelled images: "mnist", `Images`, an ``.npz`` file with ``images`` and ``labels``, or a folder of IDX files.
    epsilon, delta : float
        The total cost, for adding or removing one record; epsilon is 1 by default. Delta must be below one over the
        number of records; a larger delta raises an error, which reveals no more than that.
    method : str or object, optional
        How it learns: "tree" (the default), "aim", ... for tables, "distillation" for images; or an object, such as
        ``LabelledTree(additive=False)``.
    rows : int, optional
        How many rows or images to draw; by default about as many as there are records, by a noisy count. `sample` of
        the release draws more at any time, at no cost.
    ledger : Ledger or path, optional
        Charged before anything is learned. By default the ledger of the data, if a budget was granted for it. False
        charges none: only for generators that are never released, such as the shadow sets of an attack.
    seed : int, optional
        Makes everything but the noise reproducible.
    insecure_seed : int, optional
        Makes the noise reproducible too: the result is then not private.
    progress : callable, optional
        Called with the share of the work that is done.
    **options
        Of tables:

        - ``target``: a column of categories whose dependence on all others matters most; by default the target of the
          schema. Rows in which it is missing are left out.
        - ``schema``: what is public of the columns; by default the schema of the table. Undeclared bounds and domains
          are bought with a tenth of the budget; with ``declared_only=True`` they raise an error.
        - ``constraints``: what every row must meet, in addition to the constraints of the schema: ``"start <= end"``,
          ``"not (sex = m and pregnant = yes)"``, or ``"education -> years {'HS-grad': 9, Masters: 14}"``, by which one
          column is computed from another. They are public.
        - ``weights``: the column of survey weights, which is not drawn. It needs a declared upper bound: a record
          counts as its weight relative to that bound.
        - ``given``: what the rows that are drawn now must meet, see `Generator.sample`. All records are learned from.
        - ``person``: the column that says which rows are of the same person, to protect people instead of rows; that
          of the schema by default. ``rows_per_person`` bounds how many rows of each are read, drawn at random in
          secret; ``"bought"`` finds that number with a tenth of the budget. ``people`` draws so many people with up to
          so many rows each, instead of rows.
        - ``keep``: columns to make up although their names or values look like names of people or free text. Without
          it, such a column raises an error if it is undeclared. The error is for you: it depends on the rows.

        Of images:

        - ``classes``: the number of classes, which is public; 10 for mnist.
        - ``style``: how images are drawn: "distilled" to be learned from, "faithful" to be looked at.
        - ``quick``: a smaller form of the default method, which learns several times faster, and less.
        - ``full``: all 60,000 training images of mnist, instead of the 10,000 that are built in.
        - ``public``: whether the data set is public. Its number of images is then stated.
        - ``device``: "cpu" or "cuda"; by default the GPU, if there is one.

    Returns
    -------
    Release
        Of kind ``generator``, with the attributes of `Generator`: ``table`` has the rows, ``sample(n)`` draws more. Or
        of kind ``image-generator``, with the attributes of `ImageGenerator`: ``images`` and ``labels``.

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.synthesize("nursery", epsilon=1, rows=1000)
    >>> release.table.frame.shape, release.sample(3).columns[-1]
    ((1000, 9), 'class')
    >>> print(release.spent)
    epsilon 1 at delta 1e-05 (add or remove one record)
    """
    common = {
        "delta": delta,
        "method": method,
        "rows": rows,
        "ledger": ledger,
        "seed": seed,
        "insecure_seed": insecure_seed,
        "progress": progress,
    }
    makes, others, what = _makers(data)
    own, other = (inspect.signature(one).parameters for one in (makes, others))
    for name in options:
        if name not in own:
            hint = (
                f"it is for {'tables' if what == 'images' else 'images'}" if name in other else did_you_mean(name, own)
            )
            raise OptionError(f"'{name[:40]}' is not an option for {what}", hint=hint)
    made: Release = makes(data, **({} if epsilon is None else {"epsilon": epsilon}), **common, **options)
    return made


def makes_images(data: Any) -> bool:
    """Return whether images are made from this data, rather than rows.

    Examples
    --------
    >>> makes_images("mnist"), makes_images("adult"), makes_images("scans.npz")
    (True, False, True)
    """
    if are_images(data):
        return True
    if not isinstance(data, str | Path):
        return False
    return Path(data).is_dir() or (data == _MNIST and not Path(data).exists())  # a table is never a folder


def _makers(data: Any) -> tuple[Callable[..., Release], Callable[..., Release], str]:
    """Return the function for such data, the one for other data, and what this data is."""
    from sfumato.synthesizers.images.synthesize import synthesize_images
    from sfumato.synthesizers.tables.synthesize import synthesize as synthesize_table

    if makes_images(data):
        return synthesize_images, synthesize_table, "images"
    return synthesize_table, synthesize_images, "tables"


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Make a generator by a recipe, with new noise, from the data set that it names unless other data is given."""
    from sfumato.synthesizers.images.catalogue import image_method_of
    from sfumato.synthesizers.tables.synthesize import run_recipe as run_table_recipe

    given = recipe.options.get("data") if data is None else data
    if not makes_images(given):
        return run_table_recipe(recipe, data, **options)
    stated: Mapping[str, Any] = {**recipe.options, **options}
    left = {name: one for name, one in stated.items() if name not in ("data", "method", "parameters")}
    return synthesize(given, method=image_method_of(stated.get("method"), stated.get("parameters")), **left)
