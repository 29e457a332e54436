"""Running the real command: to its end, on a terminal, or in the background until a step of its plan pauses."""

from __future__ import annotations

import re
import shlex
import signal

from behave import step, use_step_matcher, when
from features.names import identifier, named, value_at

use_step_matcher("re")


def arguments_of(context, command):
    program, *arguments = shlex.split(named(context, command))
    assert program == "holdfast"
    # What the next step compares with: how everything was before this command.
    context.before = context.scratch.scene()
    context.mine = context.mine or context.before.mine
    return arguments


@step(r'I run "(holdfast [^"]+)"')
def run(context, command):
    context.ended = context.scratch.run(*arguments_of(context, command))


@step(r'I run "(holdfast [^"]+)" in "([^"]+)"')
def run_elsewhere(context, command, place):
    context.ended = context.scratch.run(*arguments_of(context, command), place=place)


@step(r'I run "(holdfast [^"]+)" with (\w+)=(\S+)')
def run_with_variable(context, command, variable, value):
    context.ended = context.scratch.run(*arguments_of(context, command), variables={variable: value})


@step(r'I run "(holdfast [^"]+)" on a terminal and answer "([^"]*)"')
def run_on_terminal(context, command, answer):
    context.ended = context.scratch.run_on_terminal(*arguments_of(context, command), answer=answer)


@step(r'I run "(holdfast [^"]+)" up to its pause')
def start(context, command):
    context.paused_at = ""
    context.scratch.start(*arguments_of(context, command))


@when(r"it goes on to its end")
def go_on(context):
    context.scratch.let_go_on(context.paused_at)
    context.ended = context.scratch.finish()


@when(r"it goes on to its (\w+) pause")
def go_on_to_pause(context, name):
    """The pauses of one step have no name, and then the names given to them."""
    context.scratch.let_go_on(context.paused_at)
    context.scratch.wait_for_pause(name)
    context.paused_at = name


@when(r"it has ended as well")
def wait_for_end(context):
    context.ended = context.scratch.finish()
    context.scratch.let_go_on()


@when(r"(the process|its whole process group) is killed")
def kill(context, victim):
    context.ended = context.scratch.kill(group=victim != "the process")
    # The step must not wait when it is run again.
    context.scratch.let_go_on()


@when(r"it is interrupted with Ctrl-C")
def interrupt(context):
    context.ended = context.scratch.kill(group=True, number=signal.SIGINT)
    context.scratch.let_go_on()


@when(r"it is interrupted with Ctrl-C twice")
def interrupt_twice(context):
    context.ended = context.scratch.interrupt_twice()
    context.scratch.let_go_on()


@step(r'I note the answer\'s "([^"]+)" as \{([^{}]+)\}')
def note_answer(context, path, name):
    context.noted[name] = str(value_at(context.ended.data, path))


@step(r'I note the moment before "([^"]+)" as \{([^{}]+)\}')
def note_moment_before(context, words, name):
    """As a reader of the log finds it: in the line below the one that says these words."""
    lines = context.scratch.run("log").stdout.splitlines()
    (place,) = (number for number, line in enumerate(lines) if words in line)
    context.noted[name] = re.search(r"cp_\w+", lines[place + 1])[0]


@step(r"I note \{([^{}]+)\} as \{([^{}]+)\}")
def note(context, known, name):
    context.noted[name] = identifier(context, known)
