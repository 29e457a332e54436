*** Settings ***
Documentation     An agent works in my own folder: each of its calls is a point to go back to, and what I write stays.
Resource          story.resource
Test Setup        Begin
Test Teardown     End

*** Test Cases ***
An Agent Deletes The Docs, I Edit A File, That Call Alone Is Undone, And Redone
    Agent Runs    mkdir docs; echo page > docs/page.md; git add docs; git commit -qm docs
    ${before}=    Picture Of    app/docs
    Agent Runs    rm -r docs
    Agent Runs    echo 2 > version.txt; echo log > made.log
    Write File    app/mine.txt    mine\n
    ${shown}=    Holdfast    undo    --only-call    2    --dry-run
    Should Contain    ${shown}    rm -r docs
    Should Contain    ${shown}    docs/page.md
    File Should Not Exist    app/docs
    Holdfast    undo    --only-call    2    --yes
    ${after}=    Picture Of    app/docs
    Should Be Equal    ${after}    ${before}
    Folder Should Hold    app    .git    .gitignore    docs    made.log    mine.txt    version.txt
    ${version}=    Read File    app/version.txt
    Should Be Equal    ${version}    2\n
    Holdfast    redo    --yes
    Folder Should Hold    app    .git    .gitignore    made.log    mine.txt    version.txt
    Holdfast    undo    --call    1    --yes
    Folder Should Hold    app    .git    .gitignore    mine.txt    version.txt
    ${said}=    Git    log    --format=%s
    Should Be Equal    ${said}    first
    ${status}=    Git    status    --short
    Should Be Equal    ${status}    ?? mine.txt

Nothing Else Touches The Folder Of A Session
    Agent Runs    echo 2 > version.txt
    Write File    app/mine.txt    mine\n
    ${before}=    Fingerprint Of Repository
    FOR    ${verb}    IN    execute    resume    cancel
        ${said}=    Holdfast    plan    ${verb}    latest    expected=${4}
        Should Contain    ${said}    holdfast undo
    END
    Holdfast    doctor
    Holdfast    plan    delete    --yes    latest
    ${after}=    Fingerprint Of Repository
    Should Be Equal    ${after}    ${before}

What A Guard Saw Me Write Is Undone
    Holdfast    guard    start
    Write File    app/version.txt    by mistake\n
    Wait Until Keyword Succeeds    60s    100ms    Log Should Tell Of    version.txt
    Holdfast    undo    --yes
    ${version}=    Read File    app/version.txt
    Should Be Equal    ${version}    1\n

*** Keywords ***
Begin
    Make A Scratch Project

End
    Holdfast    guard    stop
    Remove The Scratch Project

Log Should Tell Of
    [Arguments]    ${words}
    ${said}=    Holdfast    log
    Should Contain    ${said}    ${words}
