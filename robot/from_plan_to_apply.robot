*** Settings ***
Documentation     A plan of five steps over a git checkout and a directory, from its file to the real files.
Resource          story.resource
Test Setup        Make A Scratch Project
Test Teardown     Remove The Scratch Project

*** Test Cases ***
A Plan Runs, Is Rolled Back By Another Process, Runs Again And Is Applied
    ${before}=    Fingerprint Of Repository
    ${file}=    Take Plan    five_steps
    ${ran}=    Holdfast Json    plan    execute    ${file}
    Should Be Equal    ${ran}[state]    complete
    ${status}=    Holdfast Json    plan    status
    Should Not Be Equal    ${status}[last_checkpoint_id]    ${None}
    Should Be Equal    ${status}[plan_id]    ${ran}[plan_id]
    ${app}=    Sandbox Of    app
    ${data}=    Sandbox Of    data
    ${app done}=    Picture Of    ${app}
    ${data done}=    Picture Of    ${data}
    Dictionary Should Hold    ${app done}    gen/key    a.log
    # The second checkpoint is from before the first step.
    ${second}=    Checkpoint Before Step    ${0}
    ${real}=    Picture Of    app
    ${back}=    Holdfast Json    plan    rollback    --yes    latest    ${second}
    Should Be Equal    ${back}[post_rollback_state][state]    queued
    ${app back}=    Picture Of    ${app}
    ${data back}=    Picture Of    ${data}
    ${data real}=    Picture Of    data
    Should Be Equal    ${app back}    ${real}
    Should Be Equal    ${data back}    ${data real}
    ${again}=    Fingerprint Of Repository
    Should Be Equal    ${again}    ${before}    the user's repository was touched before apply
    Holdfast Json    plan    execute    latest
    ${app again}=    Picture Of    ${app}
    Lists Should Hold The Same Names    ${app again}    ${app done}
    ${applied}=    Holdfast Json    plan    apply    --yes    latest
    Should Be Equal    ${applied}[state]    applied
    ${log}=    Git    log    --format=%s %an    -2
    Should Be Equal    ${log}    upgrade the widget Ada Example\nfirst Ada Example
    ${left}=    Git    status    --porcelain
    Should Be Empty    ${left}
    ${version}=    Read File    app/version.txt
    Should Be Equal    ${version}    2\n
    ${notes}=    Read File    data/notes.txt
    Should Be Equal    ${notes}    done
    File Should Not Exist    data/empty
    File Should Not Exist    app/a.log

Two Plans Of One Project Do Not Disturb Each Other
    ${one}=    Take Plan    one_file    NAME=one
    ${two}=    Take Plan    one_file    NAME=two
    ${first}=    Holdfast Json    plan    execute    ${one}
    ${second}=    Holdfast Json    plan    execute    ${two}
    Holdfast Json    plan    apply    --yes    ${first}[plan_id]
    Holdfast Json    plan    apply    --yes    ${second}[plan_id]
    ${log}=    Git    log    --format=%s
    Should Be Equal    ${log}    two\none\nfirst
    ${listed}=    Holdfast Json    plan    list
    Length Should Be    ${listed}[plans]    2

A Conflict Is Refused By Path And Changes Nothing
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    Write File    app/version.txt    mine\n
    ${before}=    Fingerprint Of Repository
    ${said}=    Holdfast    plan    apply    --yes    latest    expected=${5}
    Should Contain    ${said}    app: version.txt
    ${after}=    Fingerprint Of Repository
    Should Be Equal    ${after}    ${before}
    File Should Not Exist    data/notes.txt

*** Keywords ***
Lists Should Hold The Same Names
    [Arguments]    ${one}    ${other}
    ${names}=    Evaluate    sorted($one)
    ${others}=    Evaluate    sorted($other)
    Should Be Equal    ${names}    ${others}
