*** Settings ***
Documentation     A bad step, a wrong decision and a kill: nothing is lost.
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
