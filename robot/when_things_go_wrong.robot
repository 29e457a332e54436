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

A Wrong Decision Is Looked At, Its Correction Tried, Made, Compared And Applied
    ${file}=    Take Plan    wrong_choice
    Holdfast    plan    execute    ${file}
    ${tree}=    Holdfast Json    plan    tree
    ${decision}=    Set Variable    ${tree}[decisions][0][children][1]
    Should Be Equal    ${decision}[chosen]    zip
    ${explained}=    Holdfast Json    plan    explain    ${decision}[decision_id]
    Should Be Equal    ${explained}[rationale]    everybody has it
    Should Be Equal    ${explained}[changes][0][file]    app/pack.txt
    Length Should Be    ${explained}[dependents]    2
    ${steps}=    Take Plan    right_choice
    ${words}=    Create List    plan    correct    --mode    revert    --guidance    smaller    --with    ${steps}    ${decision}[decision_id]
    ${said}=    Holdfast    @{words}    --dry-run
    Should Contain    ${said}    not undone: step 4 (announce)
    Should Contain    ${said}    Nothing was changed.
    Holdfast    @{words}    expected=${2}
    ${corrected}=    Holdfast Json    @{words}    --yes
    Should Be Equal As Integers    ${corrected}[attempt]    2
    ${compared}=    Holdfast Json    plan    diff    --attempt    1    2
    ${names}=    Evaluate    [each['file'] for each in $compared['files']]
    Should Be Equal    ${names}    ${{['app/pack.txt', 'app/sum.txt']}}
    ${said}=    Holdfast    plan    diff    --attempt    1    3    expected=${3}
    Should Contain    ${said}    1, 2
    Holdfast    plan    apply    --yes    latest
    ${pack}=    Read File    app/pack.txt
    Should Be Equal    ${pack}    zstd\n

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
