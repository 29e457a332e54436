"""What applying a plan would do to the real files, or onto a branch, or why it is refused; changes nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.apply.comparison import Comparison
from holdfast.apply.git_view import FilesForGit, files_of, git_can_hold
from holdfast.apply.message import commit_message
from holdfast.apply.options import ApplyOptions
from holdfast.apply.other_repositories import (
    outside_of_submodules,
    refuse_other_repositories,
    refuse_repositories_made,
)
from holdfast.apply.parts import Part, chosen_parts, refuse_to_split, start_of_rest, with_folders_of
from holdfast.apply.real_change import RealChange
from holdfast.apply.real_databases import refuse_databases_at_risk
from holdfast.apply.real_folders import reading
from holdfast.apply.refusals import (
    conflict,
    labelled,
    refuse_busy_repository,
    refuse_closed_folders,
    refuse_missing_resources,
)
from holdfast.checkpoints.changes import file_change
from holdfast.checkpoints.ignored import folders_in, ignored_by, texts_of
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, visible
from holdfast.content.format import DIRECTORY, Entry
from holdfast.errors import ConflictError, StateError
from holdfast.git.branches import branch_name, refuse_a_branch_used_elsewhere, refuse_branch_name
from holdfast.git.commit import CommitDraft, changed_by, refuse_an_impossible_commit, would_be_made
from holdfast.git.head import git_head
from holdfast.git.patterns import matching
from holdfast.git.repository import GitRepository
from holdfast.git.trees import CommittedFolders
from holdfast.git.work_tree import attributes_for, ignored_among, not_as_committed, rules_for, texts_in
from holdfast.model import (
    CheckpointGroup,
    FileChange,
    Moment,
    Plan,
    PlanState,
    Resource,
    ResourceType,
)
from holdfast.snapshot.selection import links_to_make, same, same_but_for_xattrs
from holdfast.system.directories import shown
from holdfast.system.once import once
from holdfast.system.trees import temporary_folder

if TYPE_CHECKING:
    from holdfast.git.carried import CarriedCommits

# What a function imports is not needed by most applies.


class ResourceChange(RealChange, frozen=True):
    """What applying will do to one real resource; for a branch the differences are from the sandbox's start."""

    left_out: tuple[str, ...] = ()
    """Ignored files that the plan changed, whose changes stay in the sandbox."""
    ref: str | None = None
    """The branch the commit is for; None if HEAD is detached."""
    commit: CommitDraft | None = None
    carried: CarriedCommits | None = None
    """The commits of the sandbox that come before it; the draft becomes a commit if it changes more than they do."""
    not_carried: str | None = None
    """Why there are commits in the sandbox that become one with the rest, as the end of a sentence."""


class ApplyPreview(msgspec.Struct, frozen=True):
    plan: Plan
    options: ApplyOptions
    resources: tuple[ResourceChange, ...]
    part: Part | None = None
    """What is taken of the plan's result, if something of it stays for a later apply."""
    rest: tuple[FileChange, ...] = ()
    """What stays for a later apply."""

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(_file_change(each, found) for each in self.resources for found in each.visible_differences)

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(path for each in self.resources for path in each.left_out)

    def commits(self) -> dict[str, CommitDraft]:
        """The commits that applying would make, by resource."""
        drafts = {each.resource.name: each.commit for each in self.resources if each.commit is not None}
        return {name: draft for name, draft in drafts.items() if name in self.carried or would_be_made(draft)}

    @property
    def carried(self) -> dict[str, CarriedCommits]:
        """By resource the commits of the sandbox that apply would carry over."""
        return {each.resource.name: each.carried for each in self.resources if each.carried is not None}

    @property
    def not_carried(self) -> dict[str, str]:
        """By resource why it would make one commit of those of the sandbox."""
        return {each.resource.name: each.not_carried for each in self.resources if each.not_carried is not None}

    def branch_of(self, name: str) -> str | None:
        """The branch that a resource's commit is for, as a person names it; None if HEAD is detached."""
        ref = next(each.ref for each in self.resources if each.resource.name == name)
        return branch_name(ref) if ref else None


def preview_apply(plan: Plan, service: CheckpointService, options: ApplyOptions) -> ApplyPreview:
    """What applying would do, or a refusal that names every path in conflict."""
    result = result_group(plan, service)
    refuse_missing_resources(plan.resources)
    with reading(plan.resources, service):
        analysis = _Analysis(plan, service, options, result)
        return analysis.preview(analysis.run())


def result_group(plan: Plan, service: CheckpointService, *, thorough: bool = False) -> CheckpointGroup:
    """The group that recorded the result, if the sandboxes still are exactly that.

    ``thorough``: every file is looked at, whatever the kernel told since the last look.
    """
    if plan.state is PlanState.APPLIED:
        raise StateError(
            f"Plan {plan.plan_id} is applied already.",
            hint=f"There is nothing left to do; `holdfast plan unapply {plan.plan_id}` undoes that.",
        )
    if plan.state is not PlanState.COMPLETE:
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}, only a complete plan can be applied.",
            hint=_how_to_complete(plan, service),
        )
    # Retention may have given up the first of them; what an earlier try to apply recorded is the same result.
    ends = {Moment.POST_EXECUTE, Moment.PRE_APPLY}
    head = service.store.get(CheckpointGroup, plan.head_group_id or "")
    groups = service.store.groups.of(plan.plan_id, sound_only=True)
    group = next((group for group in reversed(groups) if ends.intersection(group.triggers)), head)
    if service.sandboxes.changed_since(plan, group.states, thorough=thorough):
        raise StateError(
            "The sandboxes are not what the plan left: something changed them after it was complete.",
            hint=f"Roll back to the result with `holdfast plan rollback {plan.plan_id} {group.group_id}` "
            f"and `holdfast plan execute {plan.plan_id}`.",
        )
    return group


def _how_to_complete(plan: Plan, service: CheckpointService) -> str:
    if plan.parent_plan_id is None:
        running = f"Run `holdfast plan execute {plan.plan_id}` first."
        if plan.head_group_id is None or not plan.policy.rollback_enabled:
            return running
        return f"{running} Or make a moment of it the result: `holdfast plan keep {plan.plan_id} CHECKPOINT`."
    root = service.store.plans.root_of(plan)
    if plan.is_superseded:
        return (
            "The step that spawned it was rolled back or corrected. Its checkpoints are kept: "
            f"`holdfast checkpoint list {plan.plan_id}`; `holdfast plan tree {root.plan_id}` shows what is in force."
        )
    return f"It goes on with the whole plan: run `holdfast plan execute {root.plan_id}` first."


class _Analysis:
    """What applying would do to each resource, and the paths in conflict with it."""

    def __init__(self, plan: Plan, service: CheckpointService, options: ApplyOptions, result: CheckpointGroup) -> None:
        self._plan, self._service, self._options = plan, service, options
        self._start = start_of_rest(plan, service.store.groups.first(plan.plan_id), service)
        self._end = result.states
        self._reader = service.manager.reader
        self._conflicts: list[str] = []
        self._unfinished_work: list[str] = []
        self._rest: dict[str, list[Difference]] = {}
        self._taken: dict[str, Mapping[bytes, Entry | None]] = {}

    def preview(self, resources: tuple[ResourceChange, ...]) -> ApplyPreview:
        rest = [(name, self._left_of(self._plan.resource(name), listed)) for name, listed in self._rest.items()]
        changes = tuple(file_change(name, each) for name, listed in rest for each in listed)
        part = Part(self._start, self._taken, tuple(self._options.only)) if changes else None
        return ApplyPreview(self._plan, self._options, resources, part, changes)

    def run(self) -> tuple[ResourceChange, ...]:
        left = self._service.changes.differences(self._plan, self._start, self._end)
        found = self._chosen(left) if self._options.only else left
        resources = [self._plan.resource(name) for name in found]
        changes = [(each, outside_of_submodules(each, found[each.name])) for each in resources]
        if self._options.branch is not None:
            _refuse_branch(self._plan, self._options.branch)
            planned = [self._on_a_branch(resource, differences) for resource, differences in changes]
            _refuse_one_repository_twice(planned)
        else:
            with self._service.manager.storing() as batch:
                planned = [self._in_the_files(resource, differences, batch) for resource, differences in changes]
                batch.commit()
        into_files = planned if self._options.branch is None else []
        # Before conflicts: that a program is at work on it says more than that it is not what it was.
        refuse_databases_at_risk(into_files, self._reader)
        self._refuse_conflicts()
        planned = [self._with_commits_of_sandbox(each) for each in planned]
        refuse_closed_folders(
            [(each.root, each.differences) for each in into_files],
            [each.commit.repository for each in planned if each.commit is not None],
        )
        for each in planned:
            if each.commit is not None:
                refuse_an_impossible_commit(each.commit, each.ref, is_checked_out=self._options.branch is None)
        if self._options.branch is not None:
            self._refuse_an_empty_branch(planned)
        return tuple(planned)

    # In parts

    def _chosen(self, left: Mapping[str, Sequence[Difference]]) -> dict[str, list[Difference]]:
        chosen, found = chosen_parts(self._plan, self._options.only, left), {}
        for name, listed in left.items():
            found[name] = chosen.of(name, listed)
            paths = {each.path for each in found[name]}
            self._rest[name] = [each for each in listed if each.path not in paths]
            refuse_to_split(name, paths, self._rest[name], self._reader.state(self._end[name]))
        return {name: listed for name, listed in found.items() if listed}

    def _left_of(self, resource: Resource, rest: Sequence[Difference]) -> list[Difference]:
        """What a later apply would bring of this."""
        repository = GitRepository.at(Path(resource.path)) if resource.type is ResourceType.GIT else None
        _, left_out = self._ignored(repository, resource, rest)
        return [each for each in visible(rest) if each.path not in left_out and not same(each.old, each.new)]

    def _note_taken(self, resource: Resource, differences: Sequence[Difference], left_out: Collection[bytes]) -> None:
        if self._options.only:
            start, end = (self._reader.state(states[resource.name]) for states in (self._start, self._end))
            taken = {each.path: each.new for each in differences if each.path not in left_out}
            self._taken[resource.name] = with_folders_of(self._reader, start, end, taken)

    def _refuse_an_empty_branch(self, planned: Sequence[ResourceChange]) -> None:
        if not any(each.commit is not None and changed_by(each.commit) for each in planned):
            raise StateError(
                "The plan changed nothing that git could hold on a branch; nothing was applied.",
                hint=f"Apply it without a branch: `holdfast plan apply {self._plan.plan_id}`.",
            )

    def _refuse_conflicts(self) -> None:
        if self._conflicts:
            raise conflict(
                "These files were changed by the plan and also outside of it; nothing was applied:",
                [*self._conflicts, *self._unfinished_work],
                hint="Undo your change of these files, or make the plan's result contain it (see "
                f"`holdfast plan diff --patch {self._plan.plan_id}`), and apply again. In a git repository "
                "`--branch NAME` leaves the result on a branch of its own for you to merge.",
            )
        if self._unfinished_work:
            raise conflict(
                "The plan changed files that hold work of yours which is not committed; nothing was applied:",
                self._unfinished_work,
                hint="Commit or stash your work first, or change the files without a commit: `--no-commit`.",
            )

    # Into the files

    def _in_the_files(self, resource: Resource, differences: Sequence[Difference], batch: Batch) -> ResourceChange:
        repository = self._ready(resource)
        ignored, left_out = self._ignored(repository, resource, differences)
        self._note_taken(resource, differences, left_out)
        wanted = [found for found in differences if found.path not in left_out and not same(found.old, found.new)]
        if repository is not None:
            refuse_other_repositories(repository, wanted)
        state = self._reader.state(self._end[resource.name])
        real = Comparison(self._reader, resource, repository, state, batch)
        real.compare(wanted)
        self._conflicts += labelled(resource, real.conflicts)
        links = links_to_make(state.links, [each.path for each in real.todo if each.path not in real.merged], left_out)
        planned = ResourceChange(resource, tuple(real.todo), links, real.merged, left_out=_shown(differences, left_out))
        if repository is None or not self._options.commit:
            return planned
        head, ref = repository.head(), repository.branch()
        paths = _paths_for_git(real.todo, ignored)
        refuse_repositories_made(resource, paths)
        # If a file already has the new content, and that is not committed, the commit would lack it.
        concerned = {*paths, *_paths_for_git(real.there_already, ignored)}.difference(real.conflicts)
        committed = CommittedFolders.on_the_way_to(repository, head, concerned) if concerned else None
        unfinished = not_as_committed(repository, concerned, committed)
        self._unfinished_work += labelled(resource, unfinished - set(real.conflicts))
        if paths:
            way_out = "or leave the result on a new one: `--branch NAME`."
            refuse_a_branch_used_elsewhere(repository, ref, way_out=way_out)
        draft = CommitDraft(
            repository, head, tuple(paths), self._as_they_will_be(planned, paths).as_work_tree, committed=committed
        )
        return self._with_commit(planned, draft, ref)

    def _as_they_will_be(self, planned: ResourceChange, paths: Collection[bytes]) -> FilesForGit:
        """The paths as the real files will hold them, with the attributes that will be among those."""
        attributes = attributes_for(paths)
        coming = {path: new for path, _, new in planned.differences if path in paths or path in attributes}
        present = texts_in(planned.root, attributes - coming.keys())
        return FilesForGit(
            self._reader,
            {path: entry for path, entry in coming.items() if entry is not None and git_can_hold(entry)},
            present | {path: text for path, text in planned.merged.items() if path in coming},
        )

    def _with_commit(self, planned: ResourceChange, draft: CommitDraft, ref: str | None) -> ResourceChange:
        if not draft.paths:
            return planned
        return msgspec.structs.replace(planned, ref=ref, commit=msgspec.structs.replace(draft, message=self._message))

    def _with_commits_of_sandbox(self, planned: ResourceChange) -> ResourceChange:
        wish, resource = self._options.commits, planned.resource
        if wish == "squash" or not self._options.commit or not _may_have_commits(resource):
            return planned
        draft = planned.commit or self._draft_without_files(resource)
        if draft is None:
            return planned
        if self._options.only:
            why = "a part of the result is one commit"
            return planned if planned.commit is None else msgspec.structs.replace(planned, not_carried=why)
        from holdfast.apply.kept_commits import PlanFiles, kept_or_why_not

        files = PlanFiles(
            lambda paths: self._at(self._end, resource, list(paths)),
            lambda paths: self._ignored_among(draft.repository, resource, list(paths)),
        )
        found = kept_or_why_not(draft, resource, files)
        if not isinstance(found, str):
            ref = planned.ref if planned.commit is not None else draft.repository.branch()
            return msgspec.structs.replace(planned, commit=draft, ref=ref, carried=found)
        if wish == "keep":
            raise ConflictError(
                f"The commits of {resource.name} cannot be kept: {found}. Nothing was applied.",
                hint=f"Make one commit of them: `holdfast plan apply --commits squash {self._plan.plan_id}`.",
            )
        return planned if planned.commit is None else msgspec.structs.replace(planned, not_carried=found)

    def _draft_without_files(self, resource: Resource) -> CommitDraft | None:
        """For commits that together change nothing, on top of what is checked out."""
        if self._options.branch is not None:
            return None
        repository = GitRepository.at(Path(resource.path))
        return CommitDraft(repository, repository.head(), (), temporary_folder, self._message)

    def _ignored_among(self, repository: GitRepository, resource: Resource, paths: Sequence[bytes]) -> set[bytes]:
        rules = self._rules(resource, paths)
        return {path for each in rules for path in ignored_among(repository, each, (), paths)}

    @once
    def _message(self) -> str:
        if self._options.message is not None:
            return self._options.message.rstrip("\n") + "\n"
        return commit_message(self._plan, self._service.store.decisions.of(self._plan.plan_id))

    def _ready(self, resource: Resource) -> GitRepository | None:
        if resource.type is not ResourceType.GIT:
            return None
        repository = GitRepository.at(Path(resource.path))
        if self._options.branch is None:
            refuse_busy_repository(repository)
        return repository

    def _ignored(
        self, repository: GitRepository | None, resource: Resource, differences: Sequence[Difference]
    ) -> tuple[set[bytes], set[bytes]]:
        """What git ignores of the plan's change, and which of that stays in the sandbox."""
        if repository is None:
            return set(), set()
        rules = self._rules(resource, [difference.path for difference in differences])
        ignored = ignored_by(rules, repository, differences)
        if not ignored or not self._options.include_ignored or self._options.branch is not None:
            return ignored, ignored
        patterns = b"".join(os.fsencode(pattern) + b"\n" for pattern in self._options.include_ignored)
        return ignored, ignored - matching(patterns, ignored, folders_in(differences))

    def _rules(self, resource: Resource, changed: Sequence[bytes]) -> list[dict[bytes, bytes]]:
        """The rules for ignored files as they will be; if both changed them, those of each side."""
        names = rules_for(changed)
        base, result = (self._reader.state(states[resource.name]) for states in (self._start, self._end))
        by_plan = texts_of(self._reader, result, names)
        if self._options.branch is not None:
            return [by_plan]
        touched = names.intersection(changed)
        present, old = texts_in(Path(resource.path).resolve(), names), texts_of(self._reader, base, touched)
        together = {name: text for name, text in present.items() if name not in touched}
        together |= {name: text for name, text in by_plan.items() if name in touched}
        by_both = any(present.get(name) != old.get(name) for name in touched)
        return [together, present] if by_both else [together]

    # Onto a branch of its own

    def _on_a_branch(self, resource: Resource, differences: Sequence[Difference]) -> ResourceChange:
        repository = self._ready(resource)
        ignored, left_out = self._ignored(repository, resource, differences)
        wanted = [
            found
            for found in differences
            if found.path not in left_out and not same_but_for_xattrs(found.old, found.new)
        ]
        planned = ResourceChange(resource, tuple(wanted), left_out=_shown(differences, left_out))
        if not wanted:
            return planned
        if repository is None:
            raise StateError(
                f"The plan changed the directory {resource.name} ({resource.path}), which has no branches.",
                hint=f"Apply it without a branch: `holdfast plan apply {self._plan.plan_id}`.",
            )
        refuse_other_repositories(repository, wanted)
        paths = _paths_for_git(wanted, ignored)
        refuse_repositories_made(resource, paths)
        for_git = set(paths)
        planned = msgspec.structs.replace(planned, differences=tuple(each for each in wanted if each.path in for_git))
        parent = self._start_of(resource, repository, paths)
        ref = f"refs/heads/{self._options.branch}"
        files = self._at(self._end, resource, paths)
        return self._with_commit(planned, CommitDraft(repository, parent, tuple(paths), files.as_work_tree), ref)

    def _start_of(self, resource: Resource, repository: GitRepository, paths: list[bytes]) -> str | None:
        """The commit the plan started from; or HEAD, if the user has committed their work of that time since."""
        start, end = (self._at(states, resource, paths) for states in (self._start, self._end))
        uncommitted: set[bytes] = set()
        for commit in dict.fromkeys((resource.base["commit"] or None, repository.head())):
            if commit is not None and repository.commit_of(commit) is None:
                continue
            found = changed_by(CommitDraft(repository, commit, tuple(paths), start.as_work_tree))
            # A file in the place of a folder, or below a file, makes git forget what is there.
            found |= changed_by(CommitDraft(repository, commit, tuple(paths), end.as_work_tree)).difference(paths)
            if not found:
                return commit
            uncommitted = uncommitted or found
        self._unfinished_work += labelled(resource, uncommitted)
        return None

    def _at(self, states: Mapping[str, str], resource: Resource, paths: list[bytes]) -> FilesForGit:
        return files_of(self._reader, self._reader.state(states[resource.name]), paths)


def _paths_for_git(differences: Iterable[Difference], ignored: Collection[bytes]) -> list[bytes]:
    """The paths git has an opinion on: not directories, extended attributes, nor what it ignores."""
    return [
        path
        for path, old, new in differences
        if not all(entry is None or entry.kind == DIRECTORY for entry in (old, new))
        and not same_but_for_xattrs(old, new)
        and path not in ignored
    ]


def _may_have_commits(resource: Resource) -> bool:
    """Whether HEAD of the sandbox is not where it began; what it began with is known of each repository."""
    if "commit" not in resource.base:
        return False
    head = git_head(Path(resource.sandbox_path))
    return head is None or head.commit != (resource.base["commit"] or None)


def _refuse_branch(plan: Plan, name: str) -> None:
    for resource in plan.resources:
        if resource.type is ResourceType.GIT:
            refuse_branch_name(GitRepository.at(Path(resource.path)), name)


def _refuse_one_repository_twice(planned: Sequence[ResourceChange]) -> None:
    seen: dict[Path, str] = {}
    for each in planned:
        if each.commit is None:
            continue
        other = seen.setdefault(each.commit.repository.common_dir, each.resource.name)
        if other != each.resource.name:
            raise StateError(
                f"The resources {other} and {each.resource.name} are one repository, which can have that branch once.",
                hint="Apply the plan without `--branch`.",
            )


def _shown(differences: Sequence[Difference], left_out: Collection[bytes]) -> tuple[str, ...]:
    """What stays in the sandbox, without folders that hold something, and without files that were only touched."""
    return tuple(sorted(os.fsdecode(each.path) for each in visible(differences) if each.path in left_out))


def _file_change(each: ResourceChange, difference: Difference) -> FileChange:
    name, file = each.resource.name, shown(difference.path)
    if difference.new is None:
        return FileChange(resource=name, file=file, action="removed")
    if difference.old is None:
        return FileChange(resource=name, file=file, action="added")
    return FileChange(resource=name, file=file, action="merged" if difference.path in each.merged else "changed")
