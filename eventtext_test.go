package plimsoll_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func TestEventsInPlainWords(t *testing.T) {
	some := plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 64 << 20}
	for _, tc := range []struct {
		event   plimsoll.Event
		subject string
		want    string
	}{
		{app(plimsoll.ChangeSet, plimsoll.AppNew, "", ""), "job", "job a was submitted"},
		{
			plimsoll.Event{
				Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: "a", Head: &plimsoll.JobHead{Owner: "ann"},
			}, "job", "job a was added by ann",
		},
		{app(plimsoll.ChangeAdd, plimsoll.AppAlloc, "a.map.1", ""), "task", "task a.map.1 got a node"},
		{app(plimsoll.ChangeAdd, plimsoll.AppRequest, "a.map.1", ""), "task", "task a.map.1 waits for a node"},
		{app(plimsoll.ChangeRemove, plimsoll.AppRequest, "a.map.1", ""), "task", "task a.map.1 has ended for good"},
		{
			app(plimsoll.ChangeRemove, plimsoll.AllocCancel, "a.map.1", "failed"), "task",
			"task a.map.1 ended an attempt: failed",
		},
		{
			app(plimsoll.ChangeSet, plimsoll.AppFailed, "", "a.map.1 failed with exit code 3"), "job",
			"job a failed: a.map.1 failed with exit code 3",
		},
		{
			plimsoll.Event{
				Type: plimsoll.EventRequest, Change: plimsoll.ChangeSet, Detail: plimsoll.AllocQOSDetail,
				Object: "a.map.1", Message: "slowed down",
			}, "task", "task a.map.1 was acted on by the QoS agent of its node: slowed down",
		},
		{node(plimsoll.NodeReady, "ready: true"), "node", "node n1 is ready"},
		{
			node(plimsoll.NodeReady, "ready: false (no heartbeat for 40s)"), "node",
			"node n1 is not ready: no heartbeat for 40s",
		},
		{
			node(plimsoll.NodeSchedulable, "schedulable: false (its disk (/var) is full)"), "node",
			"node n1 takes no new tasks: its disk (/var) is full",
		},
		{
			plimsoll.Event{
				Type: plimsoll.EventNode, Change: plimsoll.ChangeAdd, Detail: plimsoll.NodeAlloc, Object: "n1",
				Reference: "a.map.1", Resources: some,
			}, "node", "node n1 got task a.map.1, which takes cpu 500m, memory 64Mi",
		},
		{queue(plimsoll.ChangeAdd, plimsoll.DetailNone, nil), "queue", "queue root.a was added"},
		{queue(plimsoll.ChangeSet, plimsoll.QueueMax, nil), "queue", "queue root.a has a new maximum: none"},
		{
			queue(plimsoll.ChangeSet, plimsoll.QueueMax, some), "queue",
			"queue root.a has a new maximum: cpu 500m, memory 64Mi",
		},
		{
			plimsoll.Event{
				Type: plimsoll.EventQueue, Change: plimsoll.ChangeSet, Detail: plimsoll.QueueConfigured,
				Object: "root", Message: plimsoll.QueuesRefusedText("root.a: is no queue"),
			}, "queue", "a configuration of the queues was refused: root.a: is no queue",
		},
		{
			userGroup(plimsoll.ChangeSet, plimsoll.UserLimit, "", "queue: root.a, max jobs: 3"), "user",
			"user ann has a new limit of resources (cpu 500m): queue: root.a, max jobs: 3",
		},
		{
			userGroup(plimsoll.ChangeRemove, plimsoll.GroupLimit, "root.a", ""), "group",
			"group ann has its limit in root.a no longer",
		},
		{
			userGroup(plimsoll.ChangeAdd, plimsoll.GroupLink, "a", ""), "group",
			"the limits of group ann hold for job a",
		},
		{
			userGroup(plimsoll.ChangeRemove, plimsoll.UserResource, "root.a", ""), "user",
			"user ann uses cpu 500m less in root.a",
		},
		{plimsoll.Event{Object: "x", Detail: 999}, "", "x: NONE unknown(999)"},
	} {
		if got := tc.event.Sentence(); got != tc.want || tc.event.Subject().String() != tc.subject {
			t.Errorf("%s %s: %q about a %s, want %q about a %s", tc.event.Change, tc.event.Detail, got,
				tc.event.Subject(), tc.want, tc.subject)
		}
	}
}

// A detail that is new has a text in the table, for at least one way of changing.
func TestEveryDetailHasPlainWords(t *testing.T) {
	for detail := range plimsoll.ChangeDetail(1000) {
		if !detail.Known() {
			continue
		}
		told := false
		for _, change := range []plimsoll.ChangeType{plimsoll.ChangeSet, plimsoll.ChangeAdd, plimsoll.ChangeRemove} {
			e := plimsoll.Event{Type: plimsoll.EventApp, Change: change, Detail: detail, Object: "a", Reference: "b"}
			text := e.Sentence()
			told = told || !strings.Contains(text, detail.String())
			for _, word := range []string{"OBJECT", "REFERENCE", "RESOURCES", "TASK"} {
				if strings.Contains(strings.ReplaceAll(text, detail.String(), ""), word) {
					t.Errorf("%s %s: a word was not replaced: %s", change, detail, text)
				}
			}
		}
		if !told {
			t.Errorf("%s has no plain words; add them to eventTexts", detail)
		}
	}
}

func TestSubjectsAreReadAsTheyArePrinted(t *testing.T) {
	for s := plimsoll.SubjectJob; s.Known(); s++ {
		if back, ok := plimsoll.ParseEventSubject(s.String()); !ok || back != s {
			t.Errorf("%s is read as %s", s, back)
		}
	}
	for _, text := range []string{"APP", "jobs"} {
		if s, ok := plimsoll.ParseEventSubject(text); ok {
			t.Errorf("%q is read as %s", text, s)
		}
	}
}

func app(change plimsoll.ChangeType, detail plimsoll.ChangeDetail, task, message string) plimsoll.Event {
	return plimsoll.Event{
		Type: plimsoll.EventApp, Change: change, Detail: detail, Object: "a", Reference: task, Message: message,
	}
}

func node(detail plimsoll.ChangeDetail, message string) plimsoll.Event {
	return plimsoll.Event{
		Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: detail, Object: "n1", Message: message,
	}
}

func queue(change plimsoll.ChangeType, detail plimsoll.ChangeDetail, r plimsoll.Resources) plimsoll.Event {
	return plimsoll.Event{
		Type: plimsoll.EventQueue, Change: change, Detail: detail, Object: "root.a", Resources: r,
	}
}

func userGroup(change plimsoll.ChangeType, detail plimsoll.ChangeDetail, reference, message string) plimsoll.Event {
	return plimsoll.Event{
		Type: plimsoll.EventUserGroup, Change: change, Detail: detail, Object: "ann", Reference: reference,
		Message: message, Resources: plimsoll.Resources{plimsoll.CPU: 500},
	}
}

func TestALimitIsReadFromItsEvent(t *testing.T) {
	for _, jobs := range []int32{0, 3} {
		e := userGroup(plimsoll.ChangeSet, plimsoll.GroupLimit, "", plimsoll.LimitText("root.a", jobs))
		if queue, most := e.Limit(); queue != "root.a" || most != jobs {
			t.Errorf("%q is read as %s, %d", e.Message, queue, most)
		}
	}
	gone := userGroup(plimsoll.ChangeRemove, plimsoll.UserLimit, "root.a", "")
	if queue, most := gone.Limit(); queue != "root.a" || most != 0 {
		t.Errorf("%+v is read as %s, %d", gone, queue, most)
	}
	for _, e := range []plimsoll.Event{
		userGroup(plimsoll.ChangeSet, plimsoll.GroupLimit, "", "other words"),
		userGroup(plimsoll.ChangeAdd, plimsoll.UserResource, "root.a", ""),
		queue(plimsoll.ChangeSet, plimsoll.QueueMax, nil),
	} {
		if queue, most := e.Limit(); queue != "" || most != 0 {
			t.Errorf("%+v is read as %s, %d", e, queue, most)
		}
	}
}
