*** Settings ***
Documentation     Back to a checkpoint: told beforehand, done, undone, of one folder only, or refused.
Resource          story.resource
Test Setup        Make A Scratch Project
Test Teardown     Remove The Scratch Project

*** Test Cases ***
A Bad Step Is Rolled Back, And The Rollback Is Undone
    ${file}=    Take Plan    bad_step
    Holdfast    plan    execute    ${file}    expected=${1}
    ${app}=    Sandbox Of    app
    ${wrecked}=    Picture Of    ${app}
    Should Not Contain    ${wrecked}    built.txt
    ${before}=    Checkpoint Before Step    ${1}
    ${back}=    Holdfast Json    plan    rollback    --yes    latest    ${before}
    Should Be Equal    ${back}[post_rollback_state][state]    queued
    ${good}=    Picture Of    ${app}
    Should Contain    ${good}    built.txt
    Should Contain    ${good}    version.txt
    Holdfast    plan    rollback    --yes    latest    ${back}[left_group_id]
    ${again}=    Picture Of    ${app}
    Should Be Equal    ${again}    ${wrecked}

A Rollback Tells Beforehand What It Will Do, Does That, And Is Undone
    ${file}=    Take Plan    wrong_choice
    Holdfast    plan    execute    ${file}
    ${app}=    Sandbox Of    app
    ${done}=    Picture Of    ${app}
    ${before}=    Checkpoint Before Step    ${1}
    ${planned}=    Holdfast Json    plan    rollback    --dry-run    latest    ${before}
    ${untouched}=    Picture Of    ${app}
    Should Be Equal    ${untouched}    ${done}
    ${back}=    Holdfast Json    plan    rollback    --yes    latest    ${before}
    FOR    ${part}    IN    rollback_summary    changes_reverted    impact    post_rollback_state
        Should Be Equal    ${planned}[${part}]    ${back}[${part}]
    END
    Should Be Equal    ${back}[impact][side_effects_not_undone][0][step]    announce
    Holdfast    plan    rollback    --yes    latest    ${back}[left_checkpoint_id]
    ${again}=    Picture Of    ${app}
    Should Be Equal    ${again}    ${done}

One Folder Is Brought Back And Everything Else Stays
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    ${app}=    Sandbox Of    app
    ${done}=    Picture Of    ${app}
    ${before}=    Checkpoint Before Step    ${4}
    ${restored}=    Holdfast Json    plan    rollback    --yes    --only    app:gen    latest    ${before}
    Should Be Equal    ${restored}[post_rollback_state][state]    queued
    ${key}=    Read File    ${app}/gen/key
    Should Be Equal    ${key}    secret\n
    ${now}=    Picture Of    ${app}
    Should Be Equal    ${now}[version.txt]    ${done}[version.txt]
    Should Contain    ${now}    gen/link
    ${data}=    Sandbox Of    data
    File Should Not Exist    ${data}/empty
    Holdfast    plan    apply    --yes    latest    expected=${4}
    Holdfast    plan    execute    latest
    Holdfast    plan    apply    --yes    latest
    ${key}=    Read File    app/gen/key
    Should Be Equal    ${key}    secret\n

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
