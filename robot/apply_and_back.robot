*** Settings ***
Documentation     A result goes into the real files beside the user's own work, and out of them again.
Resource          story.resource
Test Setup        Make A Scratch Project
Test Teardown     Remove The Scratch Project

*** Test Cases ***
An Apply Is Shown, Done, Taken Back And Done Again
    ${file}=    Take Plan    five_steps
    ${ran}=    Holdfast Json    plan    execute    ${file}
    Write File    app/mine.txt    mine\n
    ${before}=    Fingerprint Of Repository
    ${data before}=    Picture Of    data
    ${shown}=    Holdfast Json    plan    apply    --dry-run    latest
    Should Be Equal    ${shown}[plan_id]    ${ran}[plan_id]
    Should Be Equal    ${shown}[commits][app][branch]    main
    ${still}=    Fingerprint Of Repository
    Should Be Equal    ${still}    ${before}
    ${applied}=    Holdfast Json    plan    apply    --yes    latest
    Should Be Equal    ${applied}[changes]    ${shown}[changes]
    ${taken back}=    Holdfast Json    plan    unapply    --yes    latest
    Should Be Equal    ${taken back}[plan_id]    ${ran}[plan_id]
    Should Be Equal    ${taken back}[state]    complete
    ${log}=    Git    log    --format=%s
    Should Be Equal    ${log}    first
    ${left}=    Git    status    --porcelain
    Should Be Equal    ${left}    ?? mine.txt
    ${data back}=    Picture Of    data
    ${names}=    Evaluate    sorted($data_back)
    ${names before}=    Evaluate    sorted($data_before)
    Should Be Equal    ${names}    ${names before}
    ${version}=    Read File    app/version.txt
    Should Be Equal    ${version}    1\n
    Holdfast Json    plan    apply    --yes    latest
    ${version}=    Read File    app/version.txt
    Should Be Equal    ${version}    2\n

A Conflict Is Resolved By Hand And Then Applied
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    Write File    app/version.txt    mine\n
    Git    commit    --quiet    --all    --message    of mine
    ${said}=    Holdfast    plan    apply    --yes    latest    expected=${5}
    Should Contain    ${said}    app: version.txt
    # What the plan wanted is what the user has now: there is nothing left to disagree about.
    Write File    app/version.txt    2\n
    Git    commit    --quiet    --all    --message    as the plan
    Holdfast    plan    apply    --yes    latest
    ${log}=    Git    log    --format=%s    -1
    Should Be Equal    ${log}    upgrade the widget
    ${left}=    Git    status    --porcelain
    Should Be Empty    ${left}

Both Changed Other Lines Of One File
    Write File    app/list.txt    one\ntwo\nthree\nfour\nfive\n
    Git    add    list.txt
    Git    commit    --quiet    --message    a list
    ${file}=    Take Plan    first_line
    Holdfast    plan    execute    ${file}
    Write File    app/list.txt    one\ntwo\nthree\nfour\nlast\n
    Git    commit    --quiet    --all    --message    of mine
    ${applied}=    Holdfast Json    plan    apply    --yes    latest
    Should Be Equal    ${applied}[changes][0][action]    merged
    ${list}=    Read File    app/list.txt
    Should Be Equal    ${list}    first\ntwo\nthree\nfour\nlast\n

The Result Is Left On A Branch And Nothing Else Is Touched
    ${file}=    Take Plan    one_file    NAME=one
    Holdfast    plan    execute    ${file}
    ${head}=    Git    rev-parse    HEAD
    Holdfast    plan    apply    --yes    --branch    topic    latest
    ${again}=    Git    rev-parse    HEAD
    Should Be Equal    ${again}    ${head}
    File Should Not Exist    app/one.txt
    ${log}=    Git    log    --format=%s    topic
    Should Be Equal    ${log}    one\nfirst
    ${said}=    Holdfast    plan    unapply    --yes    latest
    Should Contain    ${said}    complete again
    ${branches}=    Git    branch    --format=%(refname:short)
    Should Be Equal    ${branches}    main
