*** Settings ***
Documentation     Checkpoints of sandboxes: they hold everything, and what is damaged is never taken for whole.
Resource          story.resource
Test Setup        Make A Scratch Project
Test Teardown     Remove The Scratch Project

*** Test Cases ***
A Moment In The Middle Comes Back With Modes, Links And Empty Folders Of Both Sandboxes
    ${file}=    Take Plan    halfway
    Start Holdfast    plan    execute    ${file}
    Wait For File    outside/started
    ${app}=    Sandbox Of    app
    ${data}=    Sandbox Of    data
    ${app halfway}=    Picture Of    ${app}
    ${data halfway}=    Picture Of    ${data}
    Dictionary Should Hold    ${app halfway}    gen/hollow    gen/key    gen/link
    Dictionary Should Hold    ${data halfway}    hollow    dangling
    Write File    outside/gate    open
    Wait For Holdfast
    ${before}=    Checkpoint Before Step    ${2}
    ${back}=    Holdfast Json    plan    rollback    --yes    latest    ${before}
    ${app back}=    Picture Of    ${app}
    ${data back}=    Picture Of    ${data}
    Should Be Equal    ${app back}    ${app halfway}
    Should Be Equal    ${data back}    ${data halfway}
    Should Be True    $back['rollback_summary']['files_reverted'] == len($back['changes_reverted']) > 0
    ${again}=    Holdfast Json    plan    execute    latest
    Should Be Equal    ${again}[state]    complete
    ${orders}=    Read File    ${data}/orders.csv
    Should Be Equal    ${orders}    1;2\n3\n
    File Should Not Exist    ${data}/hollow

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
