from holdfast.system.plain_calls import compare_stamps as compare_stamps
from holdfast.system.plain_calls import events_in as events_in
from holdfast.system.plain_calls import fill as fill
from holdfast.system.plain_calls import open_beneath as open_beneath
from holdfast.system.plain_calls import rename_specially as rename_specially
from holdfast.system.plain_calls import set_mtime as set_mtime
from holdfast.system.plain_calls import status_of as status_of
from holdfast.system.plain_calls import status_through as status_through
