"""Superpixels of small images by SLIC, as computed by scikit-image in 2019, when the benchmark was made.

Current versions of scikit-image rescale each image to its range of values, and derive the bounds on the size of a
segment from the actual rather than the requested number of segments. The arguments below undo both changes.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from graphgps_spse.data.superpixels import SuperpixelSums


class SlicRecipe(NamedTuple):
    """Parameters of the segmentation of the benchmark."""

    side: int
    """Height and width of images, in pixels."""
    max_segments: int
    """Largest number of superpixels."""
    first_request: int
    """First requested number of segments. It is lowered by one until there are at most `max_segments` segments."""
    compactness: float
    """Weight of positions relative to colours in SLIC."""


def recipe_of(name: str) -> SlicRecipe:
    """Return the recipe of MNIST or CIFAR10."""
    return {"MNIST": SlicRecipe(28, 75, 95, 0.25), "CIFAR10": SlicRecipe(32, 150, 200, 10.0)}[name]


def segment_image(image_HWC: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """Return the superpixel of each pixel, [H, W] from 0, of a uint8 image [H, W, C] with 1 or 3 channels.

    Colours are compared in Lab space. All computations are in float32. The version of 2019 used float64, which changes
    the segments of about one MNIST image in a hundred.
    """
    from skimage.color import rgb2lab  # imported here, because the import is slow and few runs need it
    from skimage.segmentation import slic
    from skimage.util import regular_grid

    height, width, num_channels = image_HWC.shape
    values = (image_HWC / 255.0).astype(np.float32)
    values = rgb2lab(values) if num_channels == 3 else values
    spread = float(values.max() - values.min()) or 1.0
    last_arguments: tuple[int, int, int] | None = None
    for request in range(recipe.first_request, 0, -1):
        grid = regular_grid((1, height, width), request)
        num_centres = int(np.prod([len(range(size)[part]) for size, part in zip((1, height, width), grid)]))
        requested = height * width / request  # mean pixels per segment for the requested number
        arguments = num_centres, int(0.5 * requested), int(3 * requested)
        if arguments == last_arguments:
            continue  # the result would be the same
        last_arguments, actual = (
            arguments,
            height * width / num_centres,
        )  # mean pixels per segment for the actual number
        segments = slic(
            values if num_channels == 3 else values[..., 0],
            n_segments=request,
            compactness=recipe.compactness / spread,  # undoes the rescaling
            min_size_factor=(arguments[1] + 0.5) / actual,  # scikit-image multiplies this by `actual` and rounds down
            max_size_factor=(arguments[2] + 0.5) / actual,
            convert2lab=False,
            start_label=0,
            channel_axis=-1 if num_channels == 3 else None,
        )
        if segments.max() < recipe.max_segments:
            return segments
    raise AssertionError("one segment never exceeds max_segments")


def sum_superpixels(
    images_GHWC: np.ndarray, label_G: np.ndarray, recipe: SlicRecipe, *, num_threads: int = 1
) -> SuperpixelSums:
    """Return the superpixels of uint8 images, in the order of their segment numbers."""
    with ThreadPoolExecutor(num_threads) as threads:
        tables = list(threads.map(lambda image_HWC: _sum_image(image_HWC, recipe), images_GHWC))
    table = np.concatenate(tables).astype(np.int64)
    count_N, row_N, col_N = table[:, :3].T
    sizes = np.array([len(t) for t in tables])
    return SuperpixelSums(sizes, label_G.astype(np.int64), count_N, row_N, col_N, table[:, 3:])


def _sum_image(image_HWC: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """Return sums over the pixels of each superpixel, [n, 3 + C]: number, rows, columns and colours."""
    segments = segment_image(image_HWC, recipe)
    row_HW, col_HW = np.indices(segments.shape)
    # Every segment has pixels, because scikit-image numbers connected components consecutively.
    columns = [np.ones(segments.shape), row_HW, col_HW, *np.moveaxis(image_HWC, -1, 0)]
    return np.stack([np.bincount(segments.ravel(), weights=c.ravel()) for c in columns], axis=1)
