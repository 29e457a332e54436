*** Settings ***
Documentation     A bad step, a wrong decision, a kill, and damage: what is lost is nothing, or is named.
Resource          story.resource
Test Setup        Make A Scratch Project
Test Teardown     Remove The Scratch Project

*** Test Cases ***
A Bad Step Is Found, Taken Back, Corrected And Applied
    ${file}=    Take Plan    bad_step
    ${failed}=    Holdfast    plan    execute    ${file}    expected=${1}
    Should Contain    ${failed}    check
    Should Contain    ${failed}    holdfast plan correct
    ${before}=    Checkpoint Before Step    ${1}
    ${changed}=    Holdfast    plan    diff    latest    ${before}
    Should Contain    ${changed}    version.txt
    ${shown}=    Holdfast Json    checkpoint    show    ${before}
    ${steps}=    Take Plan    fixed_step
    Holdfast    plan    correct    --yes    --mode    revert    --guidance    only temporary files    --with    ${steps}    ${shown}[decision_id]
    Holdfast    plan    apply    --yes    latest
    ${files}=    Git    ls-files
    Should Be Equal    ${files}    .gitignore\nbuilt.txt\nversion.txt

A Rollback Is Itself Rolled Back
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    ${app}=    Sandbox Of    app
    ${done}=    Picture Of    ${app}
    ${start}=    Nth Checkpoint    ${1}
    ${back}=    Holdfast Json    plan    rollback    --yes    latest    ${start}
    Holdfast    plan    rollback    --yes    latest    ${back}[left_group_id]
    ${again}=    Picture Of    ${app}
    Should Be Equal    ${again}    ${done}

A Killed Plan Goes On Where It Was
    ${file}=    Take Plan    slow_step
    Start Holdfast    plan    execute    ${file}
    Wait For File    outside/started
    Kill Holdfast
    ${status}=    Holdfast    plan    status
    Should Contain    ${status}    slow
    Write File    outside/gate    open
    ${plan}=    Holdfast Json    plan    resume    --dry-run    latest
    Should Be Equal    ${plan}[step]    slow
    ${ended}=    Holdfast Json    plan    resume    latest
    Should Be Equal    ${ended}[state]    complete
    Holdfast    plan    apply    --yes    latest
    ${slow}=    Read File    app/slow.txt
    Should Be Equal    ${slow}    2\n
    ${first}=    Read File    app/first.txt
    Should Be Equal    ${first}    1\n

Each Thing That Forbids A Rollback Is Said With Its Exit Code
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    ${start}=    Nth Checkpoint    ${1}
    Holdfast    plan    rollback    latest    ${start}    expected=${2}
    Holdfast    plan    rollback    --yes    latest    expected=${2}
    Holdfast    plan    rollback    --yes    latest    cp_00000000    expected=${3}
    Holdfast    plan    rollback    --yes    00000000    ${start}    expected=${3}
    ${other}=    Take Plan    one_file    NAME=other
    Holdfast    plan    execute    ${other}
    Holdfast    plan    rollback    --yes    latest    ${start}    expected=${4}
    Holdfast    plan    apply    --yes    latest
    ${own}=    Nth Checkpoint    ${1}
    Holdfast    plan    rollback    --yes    latest    ${own}    expected=${4}

Damage Is Named And Never Restored
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    Holdfast    doctor
    ${app}=    Sandbox Of    app
    ${before}=    Picture Of    ${app}
    ${start}=    Nth Checkpoint    ${1}
    Damage Saved Content
    ${doctor}=    Holdfast    doctor    expected=${7}
    Should Contain    ${doctor}    ${start}
    Holdfast    checkpoint    verify    expected=${7}
    Holdfast    plan    rollback    --yes    latest    ${start}    expected=${7}
    ${after}=    Picture Of    ${app}
    Should Be Equal    ${after}    ${before}
