package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

// evaluatorFlags belong to the commands that call evaluators.
type evaluatorFlags struct {
	Evaluators         []string      `help:"Ask these evaluators instead of a cluster, such as 127.0.0.1:9083,127.0.0.1:9084." placeholder:"ADDRESS"`
	EvaluatorTokenFile string        `help:"File with the token of evaluators; default: found on this machine." env:"PLIMSOLL_EVALUATOR_TOKEN_FILE" placeholder:"FILE"`
	EvaluatorTimeout   time.Duration `help:"Time limit of one call of an evaluator; a call is tried three times." default:"10s"`
}

// fleet connects to all evaluators. done closes the connections.
func (f *evaluatorFlags) fleet(a *app) (fleet *remote.Fleet, done func(), err error) {
	var parts []remote.Part
	var clients []*http.Client
	done = func() {
		for _, c := range clients {
			c.CloseIdleConnections()
		}
	}
	if f.EvaluatorTimeout <= 0 {
		return nil, done, plimsoll.Invalid("--evaluator-timeout", "is %s; give a time such as 10s", f.EvaluatorTimeout)
	}
	for _, address := range f.Evaluators {
		if slices.ContainsFunc(parts, func(p remote.Part) bool { return p.Name == address }) {
			return nil, done, plimsoll.Invalid("--evaluators", "names %s twice; its servers would count twice", address)
		}
		c, url, err := transport.CallClient(address)
		if err != nil {
			return nil, done, plimsoll.Invalid("--evaluators",
				"%q is not an address; write for example 127.0.0.1:9083", address)
		}
		transport.SendToken(c, token.Finder{Kind: token.Evaluator, File: f.EvaluatorTokenFile}.For(address))
		clients = append(clients, c)
		parts = append(parts, remote.Part{Name: address, Evaluator: remote.NewClient(c, url)})
	}
	fleet, err = remote.NewFleet(parts,
		remote.FleetOptions{Timeout: f.EvaluatorTimeout, OnRetry: func(part string, err error) {
			a.notes.printf("plimsoll: evaluator %s: %s; it is tried again\n", part, evaluatorFault(err))
		}})
	return fleet, done, err
}

// evaluatorFault returns the text of an evaluator's error.
func evaluatorFault(err error) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Sprintf("cannot be reached (%s)", cause(dial.Err))
	}
	return err.Error()
}

// remotely tries a job or a request on the servers of evaluators.
func (cmd *placeCmd) remotely(ctx context.Context, a *app) error {
	job, names, asks, err := cmd.asks(a)
	if err != nil {
		return err
	}
	chain, err := cmd.chain(a)
	if err != nil {
		return err
	}
	fleet, done, err := cmd.fleet(a)
	defer done()
	if err != nil {
		return err
	}
	return cmd.tryOnFleet(ctx, a, fleet, chain, job, names, asks)
}

// tryOnFleet tries asks on a fleet of evaluators.
func (cmd *placeCmd) tryOnFleet(
	ctx context.Context, a *app, fleet *remote.Fleet, chain *placement.Chain, job string, names []string,
	asks []placement.Ask,
) error {
	t := remoteTrial{fleet: fleet, chain: chain, now: a.now().Unix(), rng: rand.NewPCG(1, 1)}
	var tried client.Trial
	for i := range asks {
		g, err := t.place(ctx, &asks[i])
		if err != nil {
			return remoteError(err)
		}
		g.Name = names[i]
		tried.Groups = append(tried.Groups, g)
	}
	warnFailed(a, fleet)
	return cmd.print(a, viewTrial(job, &tried), func(o *output) { printTrial(o, &tried) })
}

// warnFailed names the evaluators that did not answer.
func warnFailed(a *app, fleet *remote.Fleet) {
	for _, p := range fleet.Failed() {
		a.notes.printf("plimsoll: the servers of evaluator %s were left out: %s\n", p.Name, evaluatorFault(p.Err))
	}
}

// remoteError returns an error that names the evaluator and does not mention the gateway.
func remoteError(err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf(
			"cannot reach the evaluator at %s (%s); start it with: plimsoll evaluator", dial.Addr, cause(dial.Err),
		)
	}
	return errors.New(err.Error()) // wrapping err would add advice about the gateway's token
}

// remoteTrial places asks on evaluators. Nothing is booked: each task that was placed goes into
// later calls as a ticket.
type remoteTrial struct {
	fleet   *remote.Fleet
	chain   *placement.Chain
	now     int64
	rng     *rand.PCG
	tickets []placement.Ticket
}

// place places the instances of an ask, and then reads the room that they leave on their servers.
func (t *remoteTrial) place(ctx context.Context, ask *placement.Ask) (client.TriedGroup, error) {
	g := client.TriedGroup{Asked: int32(ask.Count)}
	order := &remote.Order{Request: ask.Request, Chain: t.chain, Now: t.now}
	for range ask.Count {
		order.Tickets = t.tickets
		result, err := t.fleet.Place(ctx, t.rng, order)
		if err != nil {
			return g, err
		}
		if result.Server == "" {
			if g.Refused, err = t.refusal(ctx, order); err != nil {
				return g, err
			}
			break
		}
		g.Placed = append(g.Placed, client.PlacedTask{Node: result.Server, Score: result.Score})
		t.tickets = append(t.tickets, ticketFor(ask, result.Server, len(t.tickets)))
	}
	if len(g.Placed) > 0 {
		t.noteRoom(ctx, &g)
	}
	return g, nil
}

// ticketFor returns the ticket of an instance that was placed.
func ticketFor(ask *placement.Ask, server string, n int) placement.Ticket {
	r := &ask.Request
	id := fmt.Sprintf("plimsoll-place-%d", n)
	return placement.Ticket{ID: id, Server: server, Instance: &placement.Instance{
		ID: id, Owner: r.Owner, Job: r.Job, Group: r.Group, Labels: ask.Labels, Resources: r.Resources,
	}}
}

// noteRoom sets, for each server, the room that is left after the group. The last task on the
// server holds it.
func (t *remoteTrial) noteRoom(ctx context.Context, g *client.TriedGroup) {
	var servers []string
	for _, p := range g.Placed {
		servers = append(servers, p.Node)
	}
	left := t.fleet.Capacities(ctx, servers, t.tickets, t.now)
	for i := len(g.Placed) - 1; i >= 0; i-- {
		if c, ok := left[g.Placed[i].Node]; ok {
			g.Placed[i].Free = c.Resources()
			delete(left, g.Placed[i].Node)
		}
	}
}

// refusal explains why no server takes another task.
func (t *remoteTrial) refusal(ctx context.Context, order *remote.Order) (*client.Refusal, error) {
	x, err := t.fleet.Explain(ctx, t.rng, order)
	if err != nil || x == nil {
		return nil, err
	}
	return offlineRefusal(x, order.Request.Resources), nil
}

// offlineRefusal converts an explanation to the client's type.
func offlineRefusal(x *placement.Explanation, asked plimsoll.Resources) *client.Refusal {
	code, summary := x.Refusal(asked)
	return &client.Refusal{
		WaitCode: code, Summary: summary, Steps: offlineSteps(x.Steps),
		Nodes: client.NodeCounts{
			Total: int32(x.Servers), Open: int32(x.Open), Eligible: int32(x.Eligible), FitEmpty: int32(x.FitEmpty),
			Fit: int32(x.Fit),
		},
	}
}

// isTritonOrder reports whether a request is an order of Triton's: a machine with its package and
// image.
func isTritonOrder(keys []string) bool {
	return slices.Contains(keys, "vm") && !slices.ContainsFunc(keys, func(key string) bool {
		return !slices.Contains(tritonOrderKeys, key)
	})
}

// tritonOrderKeys are the fields of an order of Triton's.
var tritonOrderKeys = strings.Fields("vm package image")

// tritonOrder reads an order of Triton's.
func (cmd *placeCmd) tritonOrder(a *app, data []byte) (placement.Request, error) {
	var order struct{ VM, Package, Image json.RawMessage }
	if err := json.Unmarshal(data, &order); err != nil {
		return placement.Request{}, plimsoll.Invalid("", "is not an order of Triton's: %s", err)
	}
	profile, err := triton.New(placement.NewNames())
	if err != nil {
		return placement.Request{}, err
	}
	defaults, err := readDefaults(a, cmd.TritonDefaults)
	if err != nil {
		return placement.Request{}, err
	}
	if defaults != nil {
		if err := profile.Override(defaults); err != nil {
			return placement.Request{}, plimsoll.Within(cmd.TritonDefaults, err)
		}
	}
	r, err := profile.Request(triton.Order{VM: order.VM, Package: order.Package, Image: order.Image})
	if err != nil {
		return placement.Request{}, err
	}
	return *r, nil
}
