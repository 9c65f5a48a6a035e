package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// bar is the width of a line's bar, in cells.
const bar = 24

// printNode prints the state of the node as a whole.
func (p *page) printNode(q *client.NodeQOS, now time.Time) {
	sample := "no sample yet"
	if q.At != 0 {
		sample = "sample " + strconv.FormatUint(q.Sequence, 10) + ", " + ago(now, q.At)
	}
	head := []cell{{q.Node, strong}, {text: ": " + sample}}
	if q.CPU > 0 {
		cpu, memory := humanAmount(plimsoll.CPU, q.CPU/nanosPerMilli), humanAmount(plimsoll.Memory, q.Memory)
		head = append(head, cell{text: ", " + cpu + " cores, " + memory})
	}
	p.line(head...)
	if q.SchedulingDisabled {
		p.line(cell{text: "scheduling: "}, cell{"disabled", alarm}, cell{text: ", " + q.SchedulingReason})
	} else {
		p.line(cell{text: "scheduling: enabled"})
	}
	if len(q.Extended) > 0 {
		p.line(cell{text: "lends: " + listed(q.Extended)})
	}
	if q.Unable != "" {
		p.line(cell{"cannot act here: " + q.Unable, alarm})
	}
}

const nanosPerMilli = qos.Core / 1000

// printLines prints the rules, with the distance of the node from their lines.
func (p *page) printLines(q *client.NodeQOS, now time.Time) {
	if len(q.Lines) == 0 {
		p.line(cell{text: "no NodeQOS selects this node; see plimsoll policy list"})
		return
	}
	rows := make([][]cell, len(q.Lines))
	for i := range q.Lines {
		l := &q.Lines[i]
		m := qos.Metric{Unit: l.Unit, Scale: l.Scale}
		text, how := lineState(l, now)
		usage, gap, lines := "missing", "", m.Format(l.Waterline)
		if !l.Missing {
			usage = m.Format(l.Usage)
		}
		if l.Gap > 0 {
			gap = m.Format(l.Gap)
		}
		if l.Release != l.Waterline {
			lines += ", " + m.Format(l.Release)
		}
		rows[i] = []cell{
			{l.Rule, strong},
			{l.Metric, plain},
			{usage, how},
			{lineBar(l), how},
			{lines, plain},
			{gap, how},
			{text, how},
			{l.Action, plain},
		}
	}
	p.table(
		[]column{
			{"RULE", 0},
			{"METRIC", 3},
			{"USE", 0},
			{"", 2},
			{"LINE, RELEASE", 0},
			{"GAP", 1},
			{"STATE", 0},
			{"ACTION", 4},
		},
		rows,
	)
}

// lineState describes the state of a rule.
func lineState(l *client.QOSLine, now time.Time) (text string, how style) {
	switch {
	case l.Missing && l.Waits == "":
		text, how = "missing", notice
	case l.Missing:
		text, how = "missing: "+l.Waits, notice
	case l.Triggered && l.Preview:
		return "would act" + since(l, now) + " (preview)", notice
	case l.Triggered:
		text, how = "ACTING"+since(l, now), alarm
		if l.Waits != "" {
			text += ", " + l.Waits
		}
	case l.Waits != "":
		text, how = l.Waits, notice
	default:
		text = "quiet"
	}
	if l.Preview {
		text += " (preview)"
	}
	return text, how
}

func since(l *client.QOSLine, now time.Time) string {
	if l.Since == 0 {
		return ""
	}
	return " for " + span(now.Sub(time.Unix(0, l.Since)))
}

// lineBar draws the use of a resource, with the waterline ┃ and the release line ┆. Use above the
// waterline is ▓.
func lineBar(l *client.QOSLine) string {
	top := 100 * l.Scale
	if l.Unit != "percent" {
		top = max(l.Usage, l.Waterline+l.Waterline/4, 1)
	}
	at := func(v int64) int { return min(int(float64(v)/float64(top)*bar+0.5), bar) }
	use, line, release := at(l.Usage), min(at(l.Waterline), bar-1), min(at(l.Release), bar-1)
	if l.Missing {
		use = 0
	}
	var b strings.Builder
	for i := range bar {
		switch {
		case i == line:
			b.WriteRune('┃')
		case i == release:
			b.WriteRune('┆')
		case i < use && i > line:
			b.WriteRune('▓')
		case i < use:
			b.WriteRune('█')
		default:
			b.WriteRune('·')
		}
	}
	return b.String()
}

// printQOSTasks prints tasks in the order in which actions would choose them. most bounds their
// number; 0: all.
func (p *page) printQOSTasks(q *client.NodeQOS, most int) {
	if len(q.Tasks) == 0 {
		p.line(cell{text: "no tasks run here"})
		return
	}
	n := len(q.Tasks)
	if most > 0 {
		n = min(n, most)
	}
	rows, rank := make([][]cell, 0, n), 0
	for i := range q.Tasks {
		t := &q.Tasks[i]
		number, how := "-", faint
		if t.Exempt == "" {
			rank++
			number, how = strconv.Itoa(rank), plain
		}
		if i >= n {
			continue
		}
		rung, rungHow := taskRung(t)
		rows = append(rows, []cell{
			{number, how},
			{t.Task, how},
			{t.Class.String(), how},
			{strconv.Itoa(int(t.Priority)), how},
			{taskCPU(t), how},
			{taskMemory(t), how},
			{taskQuota(t), how},
			{taskWeight(t), how},
			{rung, rungHow},
			{mayAct(t), how},
		})
	}
	p.table([]column{
		{"NEXT", 0},
		{"TASK", 0},
		{"CLASS", 1},
		{"PRIO", 2},
		{"CPU", 0},
		{"MEMORY", 3},
		{"QUOTA", 0},
		{"WEIGHT", 4},
		{"NOW", 0},
		{"MAY BE ACTED ON BY", 0},
	}, rows)
	if more := len(q.Tasks) - n; more > 0 {
		p.line(cell{"and " + plural(more, "more task"), faint})
	}
}

func taskCPU(t *client.QOSTask) string {
	if !t.CPUKnown {
		return "?"
	}
	return plimsoll.FormatQuantity(plimsoll.CPU, (t.CPU+nanosPerMilli/2)/nanosPerMilli)
}

func taskMemory(t *client.QOSTask) string {
	if !t.MemoryKnown {
		return "?"
	}
	return humanAmount(plimsoll.Memory, t.Memory)
}

// taskQuota returns the quota of a task and, if it was lowered, the original one.
func taskQuota(t *client.QOSTask) string {
	now := quotaText(t.Quota)
	if t.Rung != qos.Throttle.String() && (t.OriginalQuota == 0 || t.OriginalQuota == t.Quota) {
		return now
	}
	if before := quotaText(t.OriginalQuota); before != now {
		return now + " of " + before
	}
	return now
}

func quotaText(nanocores int64) string {
	if nanocores <= 0 {
		return "none"
	}
	return plimsoll.FormatQuantity(plimsoll.CPU, (nanocores+nanosPerMilli/2)/nanosPerMilli)
}

func taskWeight(t *client.QOSTask) string {
	switch {
	case t.Idle:
		return "idle"
	case t.Shares == 0:
		return ""
	case t.OriginalShares != 0 && t.OriginalShares != t.Shares:
		return fmt.Sprintf("%d of %d", t.Shares, t.OriginalShares)
	}
	return strconv.FormatInt(t.Shares, 10)
}

// taskRung describes the action that holds a task at present.
func taskRung(t *client.QOSTask) (string, style) {
	var words []string
	switch t.Rung {
	case "":
	case "weight":
		words = append(words, "weight lowered")
	case "throttle":
		words = append(words, "throttled")
	case "evict":
		words = append(words, "evicting")
	}
	switch {
	case t.Frozen || t.Rung == "freeze":
		words = append(words, "frozen")
	case t.Stopping && t.Rung != "evict":
		words = append(words, "stopping")
	case t.Started == 0 && !t.CPUKnown:
		words = append(words, "starts")
	case t.Pending && t.Rung != "evict":
		words = append(words, "in progress")
	}
	if t.Rung != "" || t.Frozen {
		return strings.Join(words, ", "), notice
	}
	return strings.Join(words, ", "), plain
}

func mayAct(t *client.QOSTask) string {
	if t.Exempt != "" {
		return "nobody: " + t.Exempt
	}
	return strings.Join(t.Allowed, ", ")
}

// printSteps prints the steps of a plan in their order. Steps for the same reason stand below it.
func (p *page) printSteps(steps []client.QOSStep) {
	var rows [][]cell
	for i := range steps {
		s := &steps[i]
		if i == 0 || s.Reason != steps[i-1].Reason {
			rows = append(rows, []cell{{s.Reason, plain}})
		}
		verb := cell{"  " + s.Verb, strong}
		if s.Preview {
			verb = cell{"  would " + s.Verb, notice}
		}
		rows = append(rows, []cell{verb, {s.Task, plain}, {changeText(s.Before, s.After), plain}, {s.Amount, plain}})
	}
	p.table(make([]column, 4), rows)
}

func changeText(before, after string) string {
	switch {
	case before == "":
		return after
	case after == "":
		return before
	}
	what, _, _ := strings.Cut(before, " ")
	return before + " → " + strings.TrimPrefix(after, what+" ")
}

// printPlan prints the whole plan for a sample.
func (p *page) printPlan(q *client.NodeQOS) {
	switch {
	case len(q.Plan) > 0:
		p.printSteps(q.Plan)
	case q.Waits != "":
		p.line(cell{text: "nothing is planned: " + q.Waits})
	default:
		p.line(cell{text: "nothing is to be done"})
	}
	if len(q.Skipped) > 0 {
		p.gap()
		p.printSkips(q.Skipped)
	}
}

// printSkips prints the tasks that were passed over, and why.
func (p *page) printSkips(skips []client.QOSSkip) {
	rows := make([][]cell, len(skips))
	for i, s := range skips {
		rows[i] = []cell{{s.Verb, plain}, {s.Task, plain}, {s.Rule, plain}, {s.Reason, plain}}
	}
	p.table([]column{{"PASSED OVER", 0}, {"TASK", 0}, {"FOR", 1}, {"BECAUSE", 0}}, rows)
}

// qosView and the types below it are the views of -o json and -o yaml. Lines are in the metric's
// unit.
type qosView struct {
	Node       string             `json:"node"`
	Time       *string            `json:"time"`
	Sequence   uint64             `json:"sequence"`
	CPU        int64              `json:"cpu"`
	Memory     int64              `json:"memory"`
	Scheduling schedulingView     `json:"scheduling"`
	Extended   plimsoll.Resources `json:"extended"`
	Unable     string             `json:"unable"`
	Waits      string             `json:"waits"`
	Lines      []qosLineView      `json:"lines"`
	Waterlines waterlinesView     `json:"waterlines"`
	Tasks      []qosTaskView      `json:"tasks"`
	Plan       []qosStepView      `json:"plan"`
	Skipped    []qosSkipView      `json:"skipped"`
}

type schedulingView struct {
	Disabled bool   `json:"disabled"`
	Reason   string `json:"reason"`
}

type qosLineView struct {
	Rule      string   `json:"rule"`
	Metric    string   `json:"metric"`
	Unit      string   `json:"unit"`
	Waterline float64  `json:"waterline"`
	Release   float64  `json:"release"`
	Usage     *float64 `json:"usage"` // null: missing
	Gap       float64  `json:"gap"`
	Triggered bool     `json:"triggered"`
	Since     *string  `json:"since"`
	Waits     string   `json:"waits"`
	Action    string   `json:"action"`
	Preview   bool     `json:"preview"`
}

type qosTaskView struct {
	Rank           int      `json:"rank"` // 0: no action may choose the task
	Task           string   `json:"task"`
	Attempt        int32    `json:"attempt"`
	Class          string   `json:"class"`
	Priority       int32    `json:"priority"`
	CPU            *int64   `json:"cpu"`    // null: not known
	Memory         *int64   `json:"memory"` // null: not known
	Started        *string  `json:"started"`
	Quota          *int64   `json:"quota"` // null: none
	OriginalQuota  *int64   `json:"originalQuota"`
	Shares         int64    `json:"shares"`
	OriginalShares *int64   `json:"originalShares"` // null: the shares were not lowered
	Idle           bool     `json:"idle"`
	Frozen         bool     `json:"frozen"`
	Stopping       bool     `json:"stopping"`
	Pending        bool     `json:"pending"`
	Rung           string   `json:"rung"`
	Allowed        []string `json:"allowed"`
	Exempt         string   `json:"exempt"`
}

type qosStepView struct {
	Verb    string `json:"verb"`
	Task    string `json:"task"`
	Rule    string `json:"rule"`
	Metric  string `json:"metric"`
	Amount  string `json:"amount"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Reason  string `json:"reason"`
	Preview bool   `json:"preview"`
}

type qosSkipView struct {
	Task   string `json:"task"`
	Rule   string `json:"rule"`
	Verb   string `json:"verb"`
	Reason string `json:"reason"`
}

func viewQOS(q *client.NodeQOS) qosView {
	return qosView{
		Node: q.Node, Time: stamp(q.At), Sequence: q.Sequence, CPU: q.CPU / nanosPerMilli, Memory: q.Memory,
		Scheduling: schedulingView{q.SchedulingDisabled, q.SchedulingReason}, Extended: amounts(q.Extended),
		Unable: q.Unable, Waits: q.Waits,
		Lines: viewQOSLines(q.Lines), Waterlines: viewWaterlines(&q.Waterlines), Tasks: viewQOSTasks(q.Tasks),
		Plan: viewQOSSteps(q.Plan), Skipped: viewQOSSkips(q.Skipped),
	}
}

func viewQOSLines(lines []client.QOSLine) []qosLineView {
	views := make([]qosLineView, len(lines))
	for i := range lines {
		l := &lines[i]
		in := func(v int64) float64 { return float64(v) / float64(l.Scale) }
		views[i] = qosLineView{
			Rule: l.Rule, Metric: l.Metric, Unit: l.Unit, Waterline: in(l.Waterline), Release: in(l.Release),
			Gap: in(l.Gap), Triggered: l.Triggered,
			Since: stamp(l.Since), Waits: l.Waits, Action: l.Action, Preview: l.Preview,
		}
		if usage := in(l.Usage); !l.Missing {
			views[i].Usage = &usage
		}
	}
	return views
}

func viewQOSTasks(tasks []client.QOSTask) []qosTaskView {
	views, rank := make([]qosTaskView, len(tasks)), 0
	for i := range tasks {
		t := &tasks[i]
		v := qosTaskView{
			Task: t.Task, Attempt: t.Attempt, Class: t.Class.String(), Priority: t.Priority, Started: stamp(t.Started),
			Shares: t.Shares, Idle: t.Idle,
			Frozen: t.Frozen, Stopping: t.Stopping, Pending: t.Pending, Rung: t.Rung,
			Allowed: append([]string{}, t.Allowed...), Exempt: t.Exempt,
			CPU: known(t.CPU/nanosPerMilli, t.CPUKnown), Memory: known(t.Memory, t.MemoryKnown),
			Quota:          known(t.Quota/nanosPerMilli, t.Quota > 0),
			OriginalQuota:  known(t.OriginalQuota/nanosPerMilli, t.OriginalQuota > 0),
			OriginalShares: known(t.OriginalShares, t.OriginalShares > 0),
		}
		if t.Exempt == "" {
			rank++
			v.Rank = rank
		}
		views[i] = v
	}
	return views
}

func known(v int64, is bool) *int64 {
	if !is {
		return nil
	}
	return &v
}

func viewQOSSteps(steps []client.QOSStep) []qosStepView {
	views := make([]qosStepView, len(steps))
	for i, s := range steps {
		views[i] = qosStepView{
			Verb: s.Verb, Task: s.Task, Rule: s.Rule, Metric: s.Metric, Amount: s.Amount, Before: s.Before,
			After: s.After, Reason: s.Reason,
			Preview: s.Preview,
		}
	}
	return views
}

func viewQOSSkips(skips []client.QOSSkip) []qosSkipView {
	views := make([]qosSkipView, len(skips))
	for i, s := range skips {
		views[i] = qosSkipView{Task: s.Task, Rule: s.Rule, Verb: s.Verb, Reason: s.Reason}
	}
	return views
}
