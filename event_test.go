package plimsoll_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// The words and numbers are those of the design "Historical Usage Tracking", tables "Event types",
// "Change types" and "Change details". Those of users and groups are YuniKorn's.
func TestEventWordsAreTheDesigns(t *testing.T) {
	for typ, want := range map[plimsoll.EventType]string{
		0: "UNKNOWN", 1: "REQUEST", 2: "APP", 3: "NODE", 4: "QUEUE", 5: "USERGROUP", 6: "unknown(6)",
	} {
		if got := typ.String(); got != want {
			t.Errorf("event type %d is %q, want %q", typ, got, want)
		}
	}
	for change, want := range map[plimsoll.ChangeType]string{
		0: "NONE", 1: "SET", 2: "ADD", 3: "REMOVE", 4: "unknown(4)",
	} {
		if got := change.String(); got != want {
			t.Errorf("change type %d is %q, want %q", change, got, want)
		}
	}
	words := map[plimsoll.ChangeDetail]string{
		0:   "DETAILS_NONE",
		100: "REQUEST_CANCEL",
		101: "REQUEST_ALLOC",
		102: "REQUEST_TIMEOUT",
		200: "APP_ALLOC",
		201: "APP_REQUEST",
		202: "APP_REJECT",
		203: "APP_NEW",
		204: "APP_ACCEPTED",
		205: "APP_STARTING",
		206: "APP_RUNNING",
		207: "APP_COMPLETING",
		208: "APP_COMPLETED",
		209: "APP_FAILING",
		210: "APP_FAILED",
		211: "APP_RESUMING",
		212: "APP_EXPIRED",
		300: "NODE_DECOMISSION",
		301: "NODE_READY",
		302: "NODE_SCHEDULABLE",
		303: "NODE_ALLOC",
		304: "NODE_CAPACITY",
		305: "NODE_OCCUPIED",
		306: "NODE_RESERVATION",
		390: "NODE_QOS", // not the design's, like 590
		400: "QUEUE_CONFIG",
		401: "QUEUE_DYNAMIC",
		402: "QUEUE_TYPE",
		403: "QUEUE_MAX",
		404: "QUEUE_GUARANTEED",
		405: "QUEUE_APP",
		406: "QUEUE_ALLOC",
		407: "QUEUE_PREEMPTION", // YuniKorn's, like those from 600 on
		500: "ALLOC_CANCEL",
		501: "ALLOC_PREEMPT",
		502: "ALLOC_TIMEOUT",
		503: "ALLOC_REPLACED",
		504: "ALLOC_NODEREMOVED",
		590: "ALLOC_QOS",
		600: "UG_USER_LIMIT",
		601: "UG_GROUP_LIMIT",
		602: "UG_APP_LINK",
		603: "UG_USER_RESOURCE",
		604: "UG_GROUP_RESOURCE",
	}
	for number := range plimsoll.ChangeDetail(1000) {
		want, has := words[number]
		if !has {
			want = fmt.Sprintf("unknown(%d)", number)
		}
		if got := number.String(); got != want {
			t.Errorf("change detail %d is %q, want %q", number, got, want)
		}
	}
}
