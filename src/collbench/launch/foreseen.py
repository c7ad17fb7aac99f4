"""What `launch` would refuse or skip of a plan on this machine, as far as that can be known without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from collbench.errors import PlanError
from collbench.launch import engines
from collbench.launch.engines.spec import Looks
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.memory import refuse_too_large
from collbench.launch.shipped import dockerfiles
from collbench.launch.stacks import refuse_missing
from collbench.launch.storage import refuse_unusable_folder
from collbench.schema.launch_plan import LaunchPlan
from collbench.spelling import suggestion


def foreseen(expanded: ExpandedPlan) -> Iterator[str]:
    """A line for each: memory and folders that are lacking, and what the host lacks of a plan of programs.

    What images hold only their engine knows; of an image that nobody has heard of here the name is doubted.
    """
    plan = expanded.plan
    yield from _unknown_images(plan)
    yield from _refused(lambda: refuse_too_large(plan, expanded.cases))
    yield from _refused(lambda: refuse_unusable_folder(expanded.cells, plan.folder))
    looks: list[Looks] = []
    yield from _refused(lambda: looks.append(_look_at_host(expanded)))
    for image, look in (item for seen in looks for item in seen.by_image.items()):
        if plan.unusable == "skip":
            for benchmark, why in look.contents.missing_benchmarks.items():
                yield f"collbench launch would skip {benchmark} on the host, beside the image {image}: {why}"
        yield from _refused(lambda image=image, look=look: refuse_missing(plan, image, look))  # type: ignore[misc]


def _unknown_images(plan: LaunchPlan) -> Iterator[str]:
    """A name without a tag or a slash that none of the images of this collbench has may be one of the user's own."""
    known = tuple(dockerfiles())
    for image in dict.fromkeys(plan.images):
        if known and image not in known and not {"/", ":"} & set(image):
            hint = suggestion(image, known)
            yield f"image {image}: none that comes with collbench; it must be one of your own. {hint}"


def _refused(refuse: Callable[[], None]) -> Iterator[str]:
    try:
        refuse()
    except PlanError as error:
        yield f"collbench launch would refuse this plan here: {error}"


def _look_at_host(expanded: ExpandedPlan) -> Looks:
    """The environments of the host; of a plan with collectives none: which library they need, the engine knows."""
    host = expanded.placements_on(engines.HOST)
    if expanded.plan.collectives or not host:
        return Looks({})
    return engines.get(engines.HOST).connect("", lambda: None).look(expanded.plan, host, {})
