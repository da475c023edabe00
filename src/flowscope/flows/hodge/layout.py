r"""Points of blocks on shelves: sums over blocks of unequal sizes as products of a few stacks.

.. math:: C_b = \sum_{i \in b} x_i\, y_i^\top, \qquad b = 1 \dots B

A shelf holds blocks of about one size, each padded with places that hold no point and count as
zero. One product of stacks serves a shelf; blocks on one shelf differ by a tenth of their size at
most, so that little is multiplied for nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.flows.hodge.problem import Blocks

__all__ = ["Layout", "layout"]

# A block is on the shelf of a larger one if it fills so much of the places of it.
_FILLED = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Where points lie on shelves, P places in all.

    Attributes
    ----------
    points
        Point at each place; at a place without one, any.
    blank
        Places without a point.
    place
        Place of each point.
    shelves
        Blocks of each shelf, and how many places each of them has.
    row
        Row of each block, on the shelves one after the other; in order where there is one shelf.
    count
        Points of each block.
    """

    points: Int64[Tensor, "P"]
    blank: Int64[Tensor, "m"]
    place: Int64[Tensor, "N"]
    shelves: tuple[tuple[int, int], ...]
    row: Int64[Tensor, "b"]
    count: Float64[Tensor, "b"]

    def laid(self, x: Float64[Tensor, "N *shape"]) -> Float64[Tensor, "P *shape"]:
        """Values of points at their places; zero where there is none."""
        return x[self.points].index_fill_(0, self.blank, 0)

    def lifted(self, x: Float64[Tensor, "P *shape"]) -> Float64[Tensor, "N *shape"]:
        """Values at places back at the points."""
        return x[self.place]

    def summed(
        self, x: Float64[Tensor, "P k p"], y: Float64[Tensor, "P k q"]
    ) -> Float64[Tensor, "b p q"]:
        """Sum of xᵀy over the places of each block."""
        p, q = x.shape[2], y.shape[2]
        made: Tensor = x.new_empty(len(self.count), p, q)
        first = row = 0
        for blocks, each in self.shelves:
            here = slice(first, first + blocks * each)
            left = x[here].reshape(blocks, each * x.shape[1], p)
            right = y[here].reshape(blocks, each * y.shape[1], q)
            torch.bmm(left.mT, right, out=made[row : row + blocks])
            first, row = here.stop, row + blocks
        return made if len(self.shelves) == 1 else made[self.row]


def layout(units: Blocks) -> Layout:
    r"""Places of the points of each block.

    .. math:: P \le \tfrac{10}{9}\,N

    Parameters
    ----------
    units : block of each point.

    Notes
    -----
    O(N log N). Reads the sizes of the blocks from the device, once.

    Examples
    --------
    >>> two = Blocks(labels=torch.tensor([1, 0, 1]), count=2, groups=2)
    >>> found = layout(two)
    >>> found.shelves, found.count.tolist()
    (((1, 2), (1, 1)), [1.0, 2.0])
    >>> one = torch.ones(3, 1, 1).double()
    >>> found.summed(found.laid(one), found.laid(one)).flatten().tolist()
    [1.0, 2.0]
    """
    device = units.labels.device
    sorted_points = units.labels.argsort(stable=True)
    # bincount would read the largest label from the device.
    count = torch.zeros(units.count, dtype=torch.int64, device=device)
    count.index_add_(0, units.labels, torch.ones_like(units.labels))
    sizes = count.cpu()
    by_size = sizes.argsort(descending=True, stable=True)
    ends = sizes.cumsum(0)
    shelves = _shelves(sizes[by_size].tolist())
    if len(shelves) == 1:
        by_size = torch.arange(units.count)
    into, held, row = [], [], 0
    for blocks, each in shelves:
        here = by_size[row : row + blocks, None]
        step = torch.arange(each)
        full = step < sizes[here]
        # A place without a point repeats one: the last of the block, or of the one before.
        at = torch.minimum(ends[here] - sizes[here] + step, ends[here] - 1).clamp_min(0)
        into.append(at.flatten())
        held.append(full.flatten())
        row += blocks
    at, full = torch.cat(into), torch.cat(held)
    place = torch.empty(len(sorted_points), dtype=torch.int64)
    place[at[full]] = full.nonzero().flatten()  # of the points in the order of their blocks
    parts = at, (~full).nonzero().flatten(), place, by_size.argsort()
    moved = torch.cat(parts).to(device)
    at, blank, place, rows = torch.split(moved, [len(part) for part in parts])
    return Layout(
        points=sorted_points[at],
        blank=blank,
        place=torch.empty_like(sorted_points).index_copy_(0, sorted_points, place),
        shelves=tuple(shelves),
        row=rows,
        count=count.double(),
    )


def _shelves(sizes: list[int]) -> list[tuple[int, int]]:
    """How many blocks each shelf holds, and the places of each, from sizes that decrease."""
    made: list[tuple[int, int]] = []
    for size in sizes:
        if made and size >= _FILLED * made[-1][1]:
            made[-1] = (made[-1][0] + 1, made[-1][1])
        else:
            made.append((1, size))
    return made
