package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/qos"
)

type nodeTopCmd struct {
	Node     string        `arg:"" help:"Id of the node."`
	Interval time.Duration `help:"Time between two updates; 0 shows each sample." default:"1s"`
	Once     bool          `help:"Show one sample and end."`
	formatFlag
}

// Help is the detail of the help text.
func (nodeTopCmd) Help() string {
	return "A bar shows the use of a metric, up to the capacity: ┃ is the waterline, ┆ the release line, ▓ the use above the waterline.\n\n" +
		example("plimsoll node top n1", "plimsoll node top n1 --once -o json | jq '.tasks[] | select(.rank == 1)'")
}

// Run shows a node's waterlines and use until it is interrupted.
func (cmd *nodeTopCmd) Run(ctx context.Context, a *app) error {
	if cmd.Interval < 0 {
		return plimsoll.Invalid("--interval", "is %v; give a duration such as 1s, or 0 for each sample", cmd.Interval)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if cmd.Once {
		q, err := oneSample(ctx, c, cmd.Node)
		if err != nil {
			return err
		}
		return cmd.print(a, viewQOS(&q), func(o *output) { o.paint((&top{}).picture(a, &q, 0)) })
	}
	return cmd.follow(ctx, a, c)
}

// oneSample waits for the first sample of a node's QoS agent.
func oneSample(ctx context.Context, c *client.Client, node string) (client.NodeQOS, error) {
	for q, err := range c.WatchNodeQOS(ctx, node, 0) {
		if err != nil || q.At != 0 {
			return q, err
		}
	}
	return client.NodeQOS{}, plimsoll.Errorf(plimsoll.CodeUnavailable, "node %s told nothing", node)
}

// observation is one sample, or the error that ended the watch.
type observation struct {
	q   client.NodeQOS
	err error
}

func (cmd *nodeTopCmd) follow(ctx context.Context, a *app, c *client.Client) error {
	within, cancel := context.WithCancel(ctx)
	seen, ended := make(chan observation), make(chan struct{})
	go func() {
		defer close(ended)
		for q, err := range c.WatchNodeQOS(within, cmd.Node, cmd.Interval) {
			select {
			case seen <- observation{q, err}:
			case <-within.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	if cmd.Output != "table" {
		return followRecords(ctx, a, seen)
	}
	t := &top{live: a.screen != nil}
	t.open(a)
	err := t.run(ctx, a, seen)
	t.close(a)
	return err
}

// followRecords prints a line of JSON a sample; such a line is also YAML.
func followRecords(ctx context.Context, a *app, seen <-chan observation) error {
	for {
		select {
		case <-ctx.Done():
			return nil // an interrupt is the normal end of watching
		case s := <-seen:
			if s.err != nil {
				return unlessInterrupted(ctx, s.err)
			}
			line, err := json.Marshal(viewQOS(&s.q))
			if err != nil {
				return fmt.Errorf("print a sample: %w", err)
			}
			a.out.records(append(line, '\n'))
			if err := a.out.failure(); err != nil {
				return err
			}
		}
	}
}

func unlessInterrupted(ctx context.Context, err error) error {
	if canceled(err) && ctx.Err() != nil {
		return nil
	}
	return err
}

// top draws samples. On a terminal they replace each other on an alternate screen; elsewhere they
// follow each other.
type top struct {
	live bool
	last client.NodeQOS
	drew bool
	// plan is the last one that had steps. It stays on the screen so that it can be read.
	plan   []client.QOSStep
	planAt int64
}

// Control sequences of terminals (xterm, ctlseqs): the alternate screen, and the cursor.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l"
	screenClose = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfPage  = "\x1b[J"
)

func (t *top) open(a *app) {
	if t.live {
		a.out.steer(screenOpen)
	}
}

// close gives the terminal back, with the last picture on it.
func (t *top) close(a *app) {
	if !t.live {
		return
	}
	a.out.steer(screenClose)
	if t.drew {
		a.out.paint(t.picture(a, &t.last, 0))
	}
}

func (t *top) run(ctx context.Context, a *app, seen <-chan observation) error {
	var again <-chan time.Time // on a terminal the age of a sample is updated without a new one
	if t.live {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil // an interrupt is the normal end of watching
		case <-again:
			if t.drew {
				t.draw(a)
			}
		case s := <-seen:
			if s.err != nil {
				return unlessInterrupted(ctx, s.err)
			}
			t.see(s.q)
			t.draw(a)
		}
		if err := a.out.failure(); err != nil {
			return err
		}
	}
}

func (t *top) see(q client.NodeQOS) {
	t.last, t.drew = q, true
	if len(q.Plan) > 0 {
		t.plan, t.planAt = q.Plan, q.At
	}
}

func (t *top) draw(a *app) {
	if !t.live {
		a.out.paint(t.picture(a, &t.last, 0) + "\n")
		return
	}
	_, height := a.screen()
	text := t.picture(a, &t.last, max(height-1, 1))
	text = strings.ReplaceAll(painted(text), "\n", restOfLine+"\n")
	a.out.steer(screenHome + text + restOfPage)
}

// picture lays out a sample in at most height lines; 0: no bound.
func (t *top) picture(a *app, q *client.NodeQOS, height int) string {
	p := a.page()
	p.printNode(q, a.now())
	p.gap()
	p.printLines(q, a.now())
	p.gap()
	below := a.page()
	t.printBelow(below, q, a.now())
	most := 0
	if height > 0 {
		const around = 3 // the header, the line that counts further tasks, and the blank line below
		most = max(height-p.height()-below.height()-around, 3)
	}
	p.printQOSTasks(q, most)
	p.gap()
	p.b.WriteString(below.b.String())
	return p.text(height)
}

// printBelow prints the part below the tasks: the plan, and the tasks that were passed over.
func (t *top) printBelow(p *page, q *client.NodeQOS, now time.Time) {
	switch {
	case len(q.Plan) > 0:
		p.line(cell{"the last sample led to " + plural(len(q.Plan), "step"), strong})
		p.printSteps(q.Plan)
	case q.Waits != "":
		p.line(cell{text: "nothing is planned: " + q.Waits})
	default:
		p.line(cell{text: "the last sample led to nothing"})
	}
	if len(q.Plan) == 0 && len(t.plan) > 0 {
		p.line(cell{"the last steps, " + ago(now, t.planAt), strong})
		p.printSteps(t.plan)
	}
	if skips := notableSkips(q); len(skips) > 0 {
		p.gap()
		p.printSkips(skips)
	}
}

// notableSkips leaves out the expected skips: nothing is given back while a rule acts.
func notableSkips(q *client.NodeQOS) []client.QOSSkip {
	acts := slices.ContainsFunc(q.Lines, func(l client.QOSLine) bool { return l.Triggered && !l.Preview })
	return slices.DeleteFunc(slices.Clone(q.Skipped), func(s client.QOSSkip) bool {
		return acts && qos.VerbOf(s.Verb).Gives()
	})
}
