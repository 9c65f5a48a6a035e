package historian

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// timeline answers GetTimeline.
func (h *Historian) timeline(ctx context.Context, m *pb.GetTimelineRequest) (*pb.GetTimelineResponse, error) {
	q := history.TimelineQuery{From: m.GetSince(), Until: m.GetUntil()}
	var err error
	if q.Object, q.Task, err = objectOf(m); err != nil {
		return nil, err
	}
	if q.After, err = readCursor(m.GetCursor()); err != nil {
		return nil, err
	}
	if q.Limit, err = limitOf(m.GetLimit()); err != nil {
		return nil, err
	}
	if err := checkTimes(m.GetSince(), m.GetUntil()); err != nil {
		return nil, err
	}
	page, err := h.cfg.Reader.Timeline(ctx, q)
	if err != nil {
		return nil, err
	}
	res := &pb.GetTimelineResponse{Next: writeCursor(page.Next)}
	instance := ""
	for i := range page.Rows {
		r := &page.Rows[i]
		e := &pb.HistoryEvent{Id: r.ID, Event: wire.EventToProto(&r.Event)}
		if r.Instance != instance {
			instance, e.InstanceUuid = r.Instance, r.Instance
		}
		res.Events = append(res.Events, e)
	}
	return res, nil
}

// objectOf returns the object of a timeline, and the task of it.
func objectOf(m *pb.GetTimelineRequest) (o history.Object, task string, err error) {
	given := 0
	for _, id := range []string{m.GetJob(), m.GetTask(), m.GetNode(), m.GetQueue()} {
		if id != "" {
			given++
		}
	}
	switch {
	case given > 1:
		return o, "", plimsoll.Invalid("job", "and task, node and queue: give at most one of them")
	case m.GetLife() < 0, m.GetLife() > 0 && m.GetJob() == "" && m.GetTask() == "":
		return o, "", plimsoll.Invalid("life", "is a number from ListHistoryJobs, beside a job or task; leave it out")
	case m.GetJob() != "":
		err = plimsoll.ValidateID("job", m.GetJob())
		return history.Object{Kind: history.KindJob, ID: m.GetJob(), Life: m.GetLife()}, "", err
	case m.GetTask() != "":
		job, _, _, ok := wire.SplitTaskID(m.GetTask())
		if !ok {
			return o, "", plimsoll.Invalid("task", "%.80q is no id of a task; write JOB.GROUP.INDEX", m.GetTask())
		}
		return history.Object{Kind: history.KindJob, ID: job, Life: m.GetLife()}, m.GetTask(), nil
	case m.GetNode() != "":
		return history.Object{Kind: history.KindNode, ID: m.GetNode()}, "", plimsoll.ValidateID("node", m.GetNode())
	case m.GetQueue() != "":
		err = plimsoll.ValidateQueuePath("queue", m.GetQueue())
		return history.Object{Kind: history.KindQueue, ID: m.GetQueue()}, "", err
	}
	return o, "", nil
}

// limitOf checks the bound that a request sets on its answer.
func limitOf(limit int32) (int, error) {
	if limit < 0 {
		return 0, plimsoll.Invalid("limit", "is negative; give a number above zero, or leave it out")
	}
	return min(int(limit), history.MaxPage), nil
}

func checkTimes(since, until int64) error {
	switch {
	case since < 0:
		return plimsoll.Invalid("since", "is before 1970; give nanoseconds since then")
	case until < 0:
		return plimsoll.Invalid("until", "is before 1970; give nanoseconds since then")
	case until != 0 && until <= since:
		return plimsoll.Invalid("until", "is not behind since; exchange them")
	}
	return nil
}

// writeCursor returns a cursor as a text; empty for none.
func writeCursor(c history.Cursor) string {
	if c == (history.Cursor{}) {
		return ""
	}
	return strconv.FormatInt(c.Chunk, 36) + "." + strconv.FormatUint(c.ID, 36)
}

func readCursor(text string) (c history.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	chunk, id, _ := strings.Cut(text, ".")
	var errChunk, errID error
	c.Chunk, errChunk = strconv.ParseInt(chunk, 36, 64)
	c.ID, errID = strconv.ParseUint(id, 36, 64)
	if errChunk != nil || errID != nil {
		return c, plimsoll.Invalid("cursor", "%.80q is none of this server; give next of the answer before", text)
	}
	return c, nil
}

// maxBy bounds the dimensions of a question about usage.
const maxBy = 8

// usage answers GetUsage.
func (h *Historian) usage(ctx context.Context, m *pb.GetUsageRequest) (*pb.GetUsageResponse, error) {
	if err := checkTimes(m.GetSince(), m.GetUntil()); err != nil {
		return nil, err
	}
	q := history.UsageQuery{
		From: hourOf(m.GetSince()), Until: hourOf(m.GetUntil() + int64(time.Hour) - 1), Owner: m.GetOwner(),
		Queue: m.GetQueue(), Job: m.GetJob(),
	}
	if m.GetUntil() == 0 {
		q.Until = 0
	}
	var err error
	if q.Zone, err = time.LoadLocation(m.GetTimeZone()); err != nil || m.GetTimeZone() == "Local" {
		return nil, plimsoll.Invalid("timeZone", "%.80q is not known; write for example Europe/Berlin", m.GetTimeZone())
	}
	if q.By, err = dimensions(m.GetBy()); err != nil {
		return nil, err
	}
	if q.Labels, err = labelsOf(m.GetLabels()); err != nil {
		return nil, err
	}
	if q.Limit, err = limitOf(m.GetLimit()); err != nil {
		return nil, err
	}
	status, err := h.cfg.Reader.Status(ctx)
	if err != nil {
		return nil, err
	}
	rows, more, err := h.cfg.Reader.Usage(ctx, q)
	if err != nil {
		return nil, err
	}
	inTime(rows, q.By)
	res := &pb.GetUsageResponse{More: more, KnownSince: status.Since, Newest: status.Newest}
	for i := range rows {
		res.Rows = append(res.Rows, usageRow(&rows[i]))
	}
	return res, nil
}

func hourOf(nanos int64) int64 { return nanos / int64(time.Hour) * 3600 }

// inTime orders rows by the first dimension that is a time, and leaves them as they are otherwise.
func inTime(rows []history.UsageRow, by []history.Dimension) {
	at := slices.IndexFunc(by, func(d history.Dimension) bool { return d == history.ByHour || d == history.ByDay })
	if at < 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b history.UsageRow) int { return strings.Compare(a.Keys[at], b.Keys[at]) })
}

func usageRow(r *history.UsageRow) *pb.UsageRow {
	w := &r.Waits
	row := &pb.UsageRow{
		Keys: r.Keys, Started: r.Started, Ended: r.Ended, Failed: r.Failed,
		Waits: &pb.WaitTimes{
			Count: w.Count, P50: w.Percentile(50), P95: w.Percentile(95), Longest: w.Longest,
		},
	}
	if w.Count > 0 {
		row.Waits.Mean = int64(w.Total.Seconds() / float64(w.Count) * 1e9)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Used)) {
		row.Used = append(row.Used, &pb.ResourceUse{Name: name, UnitSeconds: r.Used[name].Seconds()})
	}
	return row
}

// dimensions checks what rows are made for.
func dimensions(by []string) ([]history.Dimension, error) {
	if len(by) > maxBy {
		return nil, plimsoll.Invalid("by", "there are %d; give at most %d", len(by), maxBy)
	}
	words := []string{
		string(history.ByOwner), string(history.ByQueue), string(history.ByJob), string(history.ByHour),
		string(history.ByDay),
	}
	list := make([]history.Dimension, 0, len(by))
	for i, word := range by {
		key, isLabel := strings.CutPrefix(word, history.LabelPrefix)
		switch {
		case isLabel && (key == "" || len(key) > plimsoll.MaxLabelKey):
			return nil, plimsoll.Invalid("by", "%.80q names no label; write for example label:team", word)
		case !isLabel && !slices.Contains(words, word):
			return nil, plimsoll.Invalid("by", "%.80q is no dimension; %s", word,
				plimsoll.Suggest(word, append(words, history.LabelPrefix+"KEY")))
		case slices.Contains(by[:i], word):
			return nil, plimsoll.Invalid("by", "has %s twice; give it once", word)
		}
		list = append(list, history.Dimension(word))
	}
	return list, nil
}

// labelsOf reads key=value pairs.
func labelsOf(pairs []string) (map[string]string, error) {
	if len(pairs) > plimsoll.MaxLabels {
		return nil, plimsoll.Invalid("labels", "there are %d; give at most %d", len(pairs), plimsoll.MaxLabels)
	}
	labels := map[string]string{}
	for i, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, plimsoll.Invalid(fmt.Sprintf("labels[%d]", i), "%.80q is not key=value", pair)
		}
		labels[key] = value
	}
	return labels, nil
}

// jobs answers ListHistoryJobs.
func (h *Historian) jobs(ctx context.Context, m *pb.ListHistoryJobsRequest) (*pb.ListHistoryJobsResponse, error) {
	if err := checkTimes(m.GetSince(), m.GetUntil()); err != nil {
		return nil, err
	}
	q := history.JobQuery{
		ID: m.GetId(), Owner: m.GetOwner(), Queue: m.GetQueue(), From: m.GetSince(), Until: m.GetUntil(),
	}
	var err error
	if q.Labels, err = labelsOf(m.GetLabels()); err != nil {
		return nil, err
	}
	if q.After, err = readCursor(m.GetCursor()); err != nil {
		return nil, err
	}
	if q.Limit, err = limitOf(m.GetLimit()); err != nil {
		return nil, err
	}
	page, err := h.cfg.Reader.Jobs(ctx, q)
	if err != nil {
		return nil, err
	}
	res := &pb.ListHistoryJobsResponse{Next: writeCursor(page.Next)}
	for i := range page.Rows {
		j := &page.Rows[i]
		res.Jobs = append(res.Jobs, &pb.HistoryJob{
			Life: j.Life, Id: j.ID, Uid: j.UID.Text(), Owner: j.Owner, Queue: j.Queue, Labels: j.Labels,
			State: jobState(j.State), Submitted: j.Submitted, Ended: j.Ended,
		})
	}
	return res, nil
}

// jobState returns the state of a job that an event tells.
func jobState(d plimsoll.ChangeDetail) pb.JobState {
	states := map[plimsoll.ChangeDetail]plimsoll.JobState{
		plimsoll.AppNew: plimsoll.JobNew, plimsoll.AppAccepted: plimsoll.JobAccepted,
		plimsoll.AppStarting: plimsoll.JobStarting, plimsoll.AppRunning: plimsoll.JobRunning,
		plimsoll.AppCompleting: plimsoll.JobCompleting, plimsoll.AppCompleted: plimsoll.JobCompleted,
		plimsoll.AppReject: plimsoll.JobRejected, plimsoll.AppFailing: plimsoll.JobFailing,
		plimsoll.AppFailed: plimsoll.JobFailed, plimsoll.AppResuming: plimsoll.JobResuming,
		plimsoll.AppExpired: plimsoll.JobExpired,
	}
	return pb.JobState(states[d])
}

// status answers GetHistoryStatus.
func (h *Historian) status(ctx context.Context, _ *pb.GetHistoryStatusRequest) (*pb.GetHistoryStatusResponse, error) {
	s, err := h.cfg.Reader.Status(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.GetHistoryStatusResponse{
		InstanceUuid: s.Instance, Next: s.Next, Since: s.Since, Newest: s.Newest, Oldest: s.Oldest, Events: s.Events,
		Jobs: s.Jobs, Bytes: s.Bytes,
	}
	if trouble := h.Trouble(); trouble != nil {
		res.Trouble = wire.ErrorToProto(trouble).GetMessage()
	}
	h.registration(ctx, res)
	for i := range s.Gaps {
		g := &s.Gaps[i]
		res.Gaps = append(res.Gaps, &pb.HistoryGap{
			InstanceUuid: g.Instance, First: g.First, Next: g.Next, From: g.From, To: g.To, Reason: g.Reason,
		})
	}
	return res, nil
}
