package history

import (
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// goodBatch returns a batch of three events with ids from 5 on.
func goodBatch() *Batch {
	var e ring.Encoder
	for i, at := range []int64{100, 90, 120} {
		e.Append(&plimsoll.Event{
			Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: "etl", Time: at,
			Reference: plimsoll.TaskID("etl", "main", int32(i)),
		})
	}
	return &Batch{
		Instance: "one", First: 5, Count: 3, From: 100, To: 120, Data: e.Finish(nil),
		Objects: []Object{{KindJob, "etl", 1}}, Jobs: []Job{{Life: 1, ID: "etl"}},
		Rollups: []Rollup{{Hour: 3600, Group: Group{Life: 1}}},
	}
}

func TestEachFieldOfABatchIsChecked(t *testing.T) {
	if low, high, err := goodBatch().Check(); err != nil || low != 90 || high != 120 {
		t.Fatalf("Check() = %d, %d, %v", low, high, err)
	}
	for field, spoil := range map[string]func(b *Batch){
		"instance": func(b *Batch) { b.Instance = "" },
		"count":    func(b *Batch) { b.Count = 2 },
		"first":    func(b *Batch) { b.First = 1<<63 - 2 },
		"batch":    func(b *Batch) { b.Jobs[0].Owner = strings.Repeat("x", MaxWriteBytes) },
		"from":     func(b *Batch) { b.From = 90 },
		"to":       func(b *Batch) { b.To = 90 },
		"data":     func(b *Batch) { b.Data = b.Data[:len(b.Data)-1] },
		"fold":     func(b *Batch) { b.Gap = &Gap{} },
		"gap":      func(b *Batch) { b.Gap, b.Fold = &Gap{First: 3, Next: 2}, []byte{1} },
		"objects":  func(b *Batch) { b.Objects[0].Kind = KindQueue },
		"jobs":     func(b *Batch) { b.Jobs[0].Life = 0 },
		"rollups":  func(b *Batch) { b.Rollups[0].Hour++ },
	} {
		b := goodBatch()
		spoil(b)
		_, _, err := b.Check()
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), field) {
			t.Errorf("a wrong %s gives %v", field, err)
		}
	}
}

func TestABatchFollowsThePosition(t *testing.T) {
	for _, c := range []struct {
		at    Position
		gap   bool
		there bool
		good  bool
	}{
		{Position{"one", 5}, false, false, true},
		{Position{"one", 8}, false, true, true},
		{Position{"one", 9}, false, true, true},
		{Position{"one", 6}, false, false, false},
		{Position{"one", 6}, true, false, false},
		{Position{"one", 4}, false, false, false},
		{Position{"one", 4}, true, false, true},
		{Position{"two", 5}, false, false, false},
		{Position{"two", 50}, true, false, true},
		{Position{}, false, false, false},
		{Position{}, true, false, true},
	} {
		b := goodBatch()
		if c.gap {
			b.Gap = &Gap{}
		}
		if there, err := b.Follows(c.at); there != c.there || (err == nil) != c.good {
			t.Errorf("behind %+v with a gap %v: %v, %v", c.at, c.gap, there, err)
		}
	}
	b := goodBatch()
	if b.First = 0; b.Gap == nil {
		if there, err := b.Follows(Position{}); there || err != nil {
			t.Errorf("the first events of all: %v, %v", there, err)
		}
	}
}

func TestObjectsOfEvents(t *testing.T) {
	task, job := plimsoll.TaskID("etl.v2", "main", 7), []Object{{KindJob, "etl.v2", 0}}
	for _, c := range []struct {
		event plimsoll.Event
		want  []Object
		task  bool
	}{
		{plimsoll.Event{Type: plimsoll.EventApp, Object: "etl.v2", Reference: task}, job, true},
		{plimsoll.Event{Type: plimsoll.EventApp, Object: "etl.v2"}, job, false},
		{plimsoll.Event{Type: plimsoll.EventRequest, Object: task, Reference: "etl.v2"}, job, true},
		{plimsoll.Event{Type: plimsoll.EventRequest, Object: task}, job, true},
		{
			plimsoll.Event{Type: plimsoll.EventNode, Object: "n1", Reference: task},
			[]Object{{KindNode, "n1", 0}, {KindJob, "etl.v2", 0}},
			true,
		},
		{plimsoll.Event{Type: plimsoll.EventNode, Object: "n1", Reference: "x"}, []Object{{KindNode, "n1", 0}}, false},
		{
			plimsoll.Event{Type: plimsoll.EventQueue, Object: "root.a", Reference: "etl.v2"},
			[]Object{{KindQueue, "root.a", 0}, {KindJob, "etl.v2", 0}},
			false,
		},
		{
			plimsoll.Event{
				Type: plimsoll.EventUserGroup, Detail: plimsoll.GroupLink, Object: "dev", Reference: "etl.v2",
			}, job, false,
		},
		{
			plimsoll.Event{
				Type: plimsoll.EventUserGroup, Change: plimsoll.ChangeSet, Detail: plimsoll.UserLimit, Object: "ann",
				Message: plimsoll.LimitText("root.a", 2),
			}, []Object{{KindQueue, "root.a", 0}}, false,
		},
		{
			plimsoll.Event{
				Type: plimsoll.EventUserGroup, Detail: plimsoll.UserResource, Object: "ann", Reference: "root.a",
			}, nil, false,
		},
		{plimsoll.Event{}, nil, false},
	} {
		var got []Object
		Objects(&c.event, func(o Object) { got = append(got, o) })
		if !slices.Equal(got, c.want) || Concerns(&c.event, task) != c.task {
			t.Errorf("%+v is about %v, of the task: %v", c.event, got, Concerns(&c.event, task))
		}
	}
}
