"""What is there before a command is run, and what the user does in between."""

from __future__ import annotations

from behave import given, step, use_step_matcher

use_step_matcher("re")


@step(r'in (the sandbox of )?"([^"]+)" I do')
def do(context, in_sandbox, place):
    context.scratch.shell(context.text, context.scratch.sandbox(place) if in_sandbox else place)
    if not in_sandbox:
        context.mine = None


@given(r"the plan")
def write_plan(context):
    context.scratch.write_plan("plan.yaml", context.text)


@given(r'the file "([^"]+)"')
def write_file(context, name):
    context.scratch.write(name, context.text + "\n")


@given(r'the agent "([^"]+)" that does')
def write_agent(context, name):
    context.scratch.write(f"bin/{name}", f"#!/bin/sh\n{context.text}\n").chmod(0o755)


@given(r'steps may write to "~/([^"]+)"')
def allow_writing(context, name):
    (context.scratch.root / "user" / name).mkdir()
    context.scratch.write("home/config.toml", f'sandbox.allow-write = ["~/{name}"]\n')


@given(r"this plan has run")
def run_plan(context):
    """Scenarios that change nothing share one run of the same plan."""
    is_shared = "unchanged" in context.tags
    if is_shared and context.text in context.shared:
        context.scratch = context.shared[context.text]
    else:
        write_plan(context)
        context.mine = context.scratch.mine()
        context.scratch.ask("plan", "execute", "plan.yaml")
        if is_shared:
            context.shared[context.text] = context.scratch


@given(r'the sandbox of "([^"]+)" is lost')
def lose_sandbox(context, resource):
    sandbox, elsewhere = context.scratch.sandbox(resource), context.scratch.root / "user" / "lost"
    sandbox.rename(elsewhere)
    # Others may share this project.
    context.add_cleanup(lambda: sandbox.exists() or elsewhere.rename(sandbox))


@step(r'I remember the sandboxes as "([^"]+)"')
def remember_sandboxes(context, name):
    context.remembered[name] = context.scratch.described_sandboxes()
