"""Bringing results into the real files, and out again, under the lease of the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from holdfast.apply.apply import ApplyResult, apply_plan
from holdfast.apply.options import ApplyOptions, ApplyWishes
from holdfast.apply.preview import ApplyPreview, preview_apply
from holdfast.apply.unapply import UnapplyPreview, preview_unapply, unapply_plan
from holdfast.config.keys import refuse_patterns
from holdfast.config.loading import Settings
from holdfast.errors import UsageError
from holdfast.locking import Locking
from holdfast.parts import Declined, Parts

if TYPE_CHECKING:
    from holdfast.events import Listener


class Applying:
    """Applies the plans of one home."""

    def __init__(self, parts: Parts, locking: Locking) -> None:
        self._parts, self._locking = parts, locking

    def apply(
        self,
        reference: str,
        confirm: Callable[[ApplyPreview], bool] | None,
        listener: Listener | None,
        **wishes: Unpack[ApplyWishes],
    ) -> ApplyResult | Declined:
        options, service = _options(self._parts.settings, **wishes), self._parts.service
        with (
            self._locking.recovered(self._locking.APPLY, reference, listener=listener) as (plan, lease),
            service.sandboxes.looking(),
        ):
            return apply_plan(plan, lease, service, options, confirm) or Declined()

    def apply_preview(self, reference: str, **wishes: Unpack[ApplyWishes]) -> ApplyPreview:
        options = _options(self._parts.settings, **wishes)
        return preview_apply(self._locking.idle(self._locking.APPLY, reference), self._parts.service, options)

    def unapply(
        self, reference: str, confirm: Callable[[UnapplyPreview], bool] | None, listener: Listener | None
    ) -> UnapplyPreview | Declined:
        with self._locking.recovered(self._locking.UNAPPLY, reference, listener=listener) as (plan, lease):
            return unapply_plan(plan, lease, self._parts.service, confirm) or Declined()

    def unapply_preview(self, reference: str) -> UnapplyPreview:
        return preview_unapply(self._locking.idle(self._locking.UNAPPLY, reference), self._parts.service)


def _options(settings: Settings, **wishes: Unpack[ApplyWishes]) -> ApplyOptions:
    include_ignored = wishes.get("include_ignored", ())
    refuse_patterns("--include-ignored", include_ignored)
    if wishes.get("branch") is not None and include_ignored:
        raise UsageError(
            "A branch holds no file that git ignores: `--branch` and `--include-ignored` exclude each other.",
            hint="Use one.",
        )
    wishes["include_ignored"] = (*settings.include_ignored, *settings.apply_ignored, *include_ignored)
    return ApplyOptions(**wishes)
