package history

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// Bounds of parts of a Batch.
const (
	MaxFoldBytes     = 512 << 20 // bytes of Batch.Fold
	MaxInstanceBytes = 128
	MaxReasonBytes   = 1 << 10 // bytes of Gap.Reason
)

const secondsPerHour = 3600

// Bytes returns the part of a batch that MaxWriteBytes bounds. Numbers count as they are stored.
func (b *Batch) Bytes() int {
	n := len(b.Instance) + len(b.Data) + 64
	for i := range b.Objects {
		n += len(b.Objects[i].ID) + 16
	}
	for i := range b.Jobs {
		n += b.Jobs[i].Bytes()
	}
	for i := range b.Rollups {
		r := &b.Rollups[i]
		n += len(r.Group.Owner) + len(r.Group.Queue) + len(r.Group.Labels) + r.Sums.Bytes() + 24
	}
	if b.Gap != nil {
		n += len(b.Gap.Instance) + len(b.Gap.Reason) + 32
	}
	return n
}

// Bytes returns about how many bytes a job takes in a page.
func (j *Job) Bytes() int {
	n := len(j.ID) + len(j.Owner) + len(j.Queue) + 56
	for _, key := range slices.Sorted(maps.Keys(j.Labels)) {
		n += len(key) + len(j.Labels[key]) + 4
	}
	return n
}

// Bytes returns about how many bytes sums take in an answer.
func (s *Sums) Bytes() int {
	n := 10*len(s.Waits.Buckets) + 64
	for _, name := range slices.Sorted(maps.Keys(s.Used)) {
		n += len(name) + 20
	}
	return n
}

// Bytes returns about how many bytes a record takes in a page.
func (r *Record) Bytes() int {
	e := &r.Event
	n := len(r.Instance) + len(e.Object) + len(e.Reference) + len(e.Message) + e.Head.Size() + 32
	for _, name := range slices.Sorted(maps.Keys(e.Resources)) {
		n += len(name) + 10
	}
	return n
}

// Check returns the times of the earliest and the latest event of a batch, or an error that names
// the field which no Writer takes. It unpacks the events.
func (b *Batch) Check() (low, high int64, err error) {
	switch {
	case b.Instance == "" || len(b.Instance) > MaxInstanceBytes:
		return 0, 0, plimsoll.Invalid("instance", "it has %d bytes; 1 to %d are possible", len(b.Instance),
			MaxInstanceBytes)
	case b.Count < 1 || b.Count > MaxWriteEvents:
		return 0, 0, plimsoll.Invalid("count", "it is %d; 1 to %d events are possible", b.Count, MaxWriteEvents)
	case b.First > math.MaxInt64-b.Count:
		return 0, 0, plimsoll.Invalid("first", "%d is too large", b.First)
	case b.Bytes() > MaxWriteBytes:
		return 0, 0, plimsoll.Invalid("batch", "it has %d bytes; %d are possible: write fewer events at once",
			b.Bytes(), MaxWriteBytes)
	case len(b.Fold) > MaxFoldBytes:
		return 0, 0, plimsoll.Invalid("fold", "it has %d bytes; %d are possible", len(b.Fold), MaxFoldBytes)
	}
	if err := b.checkGap(); err != nil {
		return 0, 0, err
	}
	if err := b.checkParts(); err != nil {
		return 0, 0, err
	}
	return b.checkEvents()
}

func (b *Batch) checkGap() error {
	g := b.Gap
	switch {
	case g == nil:
		return nil
	case len(g.Reason) > MaxReasonBytes || len(g.Instance) > MaxInstanceBytes:
		return plimsoll.Invalid("gap", "its reason or its instance is too long")
	case g.First > g.Next || g.Next > math.MaxInt64:
		return plimsoll.Invalid("gap", "it goes from id %d to %d", g.First, g.Next)
	case b.Fold == nil:
		return plimsoll.Invalid("fold", "a batch behind a gap needs one: the state before the gap does not lead to it")
	}
	return nil
}

func (b *Batch) checkParts() error {
	for i := range b.Objects {
		o := &b.Objects[i]
		if o.Kind < KindJob || o.Kind > KindQueue || o.ID == "" || o.Life < 0 || o.Life > maxLife ||
			o.Life > 0 && o.Kind != KindJob {
			return plimsoll.Invalid("objects", "number %d is of kind %d and life %d, with the id %q", i, o.Kind, o.Life,
				o.ID)
		}
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.Life < 1 || j.Life > maxLife || j.ID == "" || j.Ended < 0 {
			return plimsoll.Invalid("jobs", "number %d has the life %d, the id %q and the end %d", i, j.Life, j.ID,
				j.Ended)
		}
	}
	for i := range b.Rollups {
		r := &b.Rollups[i]
		if r.Hour%secondsPerHour != 0 || r.Group.Life < 0 || r.Group.Life > maxLife {
			return plimsoll.Invalid("rollups", "number %d has the hour %d and the life %d", i, r.Hour, r.Group.Life)
		}
		if _, ok := DecodeLabels(r.Group.Labels); !ok {
			return plimsoll.Invalid("rollups", "number %d has the labels %.100q, which EncodeLabels does not make", i,
				r.Group.Labels)
		}
	}
	return nil
}

// maxLife leaves room for a kind beside a life in 64 bits.
const maxLife = 1 << 60

func (b *Batch) checkEvents() (low, high int64, err error) {
	count, last := uint64(0), int64(0)
	for ev, err := range ring.Decode(b.Data) {
		switch {
		case err != nil:
			return 0, 0, &plimsoll.Error{
				Code: plimsoll.CodeInvalid, Field: "data", Msg: "it is no chunk of events", Err: err,
			}
		case count == 0:
			low, high = ev.Time, ev.Time
			if ev.Time != b.From {
				return 0, 0, plimsoll.Invalid("from", "it is %d, and the first event has the time %d", b.From, ev.Time)
			}
		}
		low, high, last = min(low, ev.Time), max(high, ev.Time), ev.Time
		count++
	}
	switch {
	case count != b.Count:
		return 0, 0, plimsoll.Invalid("count", "it is %d, and there are %d events", b.Count, count)
	case last != b.To:
		return 0, 0, plimsoll.Invalid("to", "it is %d, and the last event has the time %d", b.To, last)
	}
	return low, high, nil
}

// Follows reports whether a history at a position has a batch already. It fails with CodeInvalid
// for a batch that cannot go behind the position.
func (b *Batch) Follows(p Position) (there bool, err error) {
	same := b.Instance == p.Instance
	switch {
	case same && b.First+b.Count <= p.Next:
		return true, nil
	case same && b.First < p.Next:
		return false, plimsoll.Invalid("first", "it is %d, and the history has the events up to %d", b.First, p.Next-1)
	case b.Gap != nil || same && b.First == p.Next || p.Instance == "" && b.First == 0:
		return false, nil
	}
	return false, plimsoll.Invalid(
		"first", "it is %d of %s, and the history goes on with %d of %q; what is missing needs a gap", b.First, b.Instance,
		p.Next, p.Instance,
	)
}

// JoinedReason is the reason of a gap that stands for several.
const JoinedReason = "Several old gaps are shown as one."

// Joined returns the gap that stands for two, the older of which is g.
func (g Gap) Joined(newer Gap) Gap {
	return Gap{Instance: newer.Instance, From: g.From, To: newer.To, Reason: JoinedReason}
}

// Objects calls fn for each object that an event is about, without Life: for its queue or node, and
// for its job, also if it names only a task of that. A limit of users is about its queue. The use
// of a user or group is about nothing that can be asked for.
func Objects(ev *plimsoll.Event, fn func(Object)) {
	job := ""
	switch ev.Type {
	case plimsoll.EventRequest:
		if job = ev.Reference; job == "" {
			job = jobOfTask(ev.Object)
		}
	case plimsoll.EventApp:
		job = ev.Object
	case plimsoll.EventNode:
		if ev.Object != "" {
			fn(Object{Kind: KindNode, ID: ev.Object})
		}
		job = jobOfTask(ev.Reference)
	case plimsoll.EventQueue:
		if ev.Object != "" {
			fn(Object{Kind: KindQueue, ID: ev.Object})
		}
		job = ev.Reference
	case plimsoll.EventUserGroup:
		if queue, _ := ev.Limit(); queue != "" {
			fn(Object{Kind: KindQueue, ID: queue})
		}
		if ev.Detail == plimsoll.GroupLink {
			job = ev.Reference
		}
	}
	if job != "" {
		fn(Object{Kind: KindJob, ID: job})
	}
}

// jobOfTask returns the job of a task's id, which is job.group.index; empty if it is none.
func jobOfTask(id string) string {
	for range 2 {
		i := strings.LastIndexByte(id, '.')
		if i < 0 {
			return ""
		}
		id = id[:i]
	}
	return id
}

// Concerns reports whether an event is about a task.
func Concerns(ev *plimsoll.Event, task string) bool {
	switch ev.Type {
	case plimsoll.EventRequest:
		return ev.Object == task
	case plimsoll.EventApp, plimsoll.EventNode:
		return ev.Reference == task
	}
	return false
}

// Begins reports whether an event begins a life of the job that is its object.
func Begins(ev *plimsoll.Event) bool {
	return ev.Type == plimsoll.EventApp && ev.Change == plimsoll.ChangeAdd && ev.Detail == plimsoll.DetailNone
}

// Check returns an error that names a field without sense, and sets the limit if there is none.
func (q *TimelineQuery) Check() error {
	o := &q.Object
	switch {
	case *o != Object{} && (o.Kind < KindJob || o.Kind > KindQueue || o.ID == ""):
		return plimsoll.Invalid("object", "it is of kind %d, with the id %q", o.Kind, o.ID)
	case o.Life < 0 || o.Life > maxLife || o.Life > 0 && o.Kind != KindJob:
		return plimsoll.Invalid("object", "an object of kind %d has no life %d", o.Kind, o.Life)
	case q.Task != "" && o.Kind != KindJob:
		return plimsoll.Invalid("task", "give its job as the object too")
	}
	return checkPage(&q.Limit, q.After)
}

func checkPage(limit *int, after Cursor) error {
	if *limit == 0 {
		*limit = MaxPage
	}
	if *limit < 0 || *limit > MaxPage {
		return plimsoll.Invalid("limit", "it is %d; 1 to %d are possible", *limit, MaxPage)
	}
	if after.Chunk < 0 {
		return plimsoll.Invalid("after", "no page ends there")
	}
	return nil
}

// Meets reports whether an event is about the object and the task. It does not compare lives.
func (q *TimelineQuery) Meets(ev *plimsoll.Event) bool {
	if q.Object.Kind == 0 {
		return true
	}
	found := false
	Objects(ev, func(o Object) { found = found || o.Kind == q.Object.Kind && o.ID == q.Object.ID })
	return found && (q.Task == "" || Concerns(ev, q.Task))
}

// Check returns an error that names a field without sense, and sets the limit if there is none.
func (q *JobQuery) Check() error { return checkPage(&q.Limit, q.After) }

// Meets reports whether a job meets a query.
func (q *JobQuery) Meets(j *Job) bool {
	return (q.ID == "" || q.ID == j.ID) && (q.Owner == "" || q.Owner == j.Owner) && within(j.Queue, q.Queue) &&
		hasLabels(j.Labels, q.Labels) && (q.Until == 0 || j.Submitted < q.Until) && (j.Ended == 0 || j.Ended >= q.From)
}

// within reports whether a queue is another one or below it. Empty is above all.
func within(queue, above string) bool {
	return above == "" || strings.HasPrefix(queue, above) && (len(queue) == len(above) || queue[len(above)] == '.')
}

func hasLabels(labels, wanted map[string]string) bool {
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, has := labels[key]; !has || value != wanted[key] {
			return false
		}
	}
	return true
}

// Check returns an error that names a field without sense, and sets the limit if there is none.
func (q *UsageQuery) Check() error {
	for i, by := range q.By {
		switch label, isLabel := strings.CutPrefix(string(by), LabelPrefix); {
		case isLabel && label != "":
		case by == ByOwner, by == ByQueue, by == ByJob, by == ByHour, by == ByDay:
		default:
			return plimsoll.Invalid("by", "%q is not owner, queue, job, hour, day, or label: and a key", by)
		}
		if slices.Contains(q.By[:i], by) {
			return plimsoll.Invalid("by", "%q is there twice", by)
		}
	}
	if len(q.By) > maxDimensions {
		return plimsoll.Invalid("by", "it has %d facts; at most %d are possible", len(q.By), maxDimensions)
	}
	return checkPage(&q.Limit, Cursor{})
}

// maxDimensions bounds UsageQuery.By.
const maxDimensions = 16

// NeedsLabels reports whether labels decide about the answer.
func (q *UsageQuery) NeedsLabels() bool {
	return len(q.Labels) > 0 ||
		slices.ContainsFunc(q.By, func(by Dimension) bool { return strings.HasPrefix(string(by), LabelPrefix) })
}

// Meets reports whether use with some facts is asked for. It does not compare times and jobs.
func (q *UsageQuery) Meets(owner, queue string, labels map[string]string) bool {
	return (q.Owner == "" || q.Owner == owner) && within(queue, q.Queue) && hasLabels(labels, q.Labels)
}

// HourKey returns the key of ByHour for the hour that begins at a time in Unix seconds.
func HourKey(hour int64) string { return time.Unix(hour, 0).UTC().Format("2006-01-02T15:04Z") }

// DayKey returns the key of ByDay. A nil zone is UTC.
func DayKey(hour int64, zone *time.Location) string {
	if zone == nil {
		zone = time.UTC
	}
	return time.Unix(hour, 0).In(zone).Format(time.DateOnly)
}
