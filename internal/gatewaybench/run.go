package gatewaybench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
)

const (
	capacityConnections = 16
	turns               = 9 // of a gateway and a bare handler, for each row of Report.Bare
)

// run is a run under way.
type run struct {
	cfg             Config
	report          Report
	leader, gateway *process
	bare            *process
}

// Run measures. When ctx ends it stops its processes and returns the error of ctx.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg.withDefaults(), report: Report{Machine: machine(), Records: records}}
	defer func() {
		for _, p := range []*process{r.gateway, r.leader, r.bare} {
			if p != nil {
				err = errors.Join(err, p.stop())
			}
		}
	}()
	for _, step := range []func(context.Context) error{
		r.start, r.compareAnswers, r.measureCapacity, r.measureLoads, r.measureBarrier, r.measureBare,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err() //nolint:wrapcheck // the caller's own
			}
			return nil, err
		}
	}
	return &r.report, nil
}

// start starts the leader and the gateway.
func (r *run) start(ctx context.Context) (err error) {
	r.cfg.Tell("starting a leader and a gateway")
	if r.leader, err = start(ctx, r.cfg.Server, roleLeader); err != nil {
		return err
	}
	r.gateway, err = start(ctx, r.cfg.Server, roleGateway, "--leader", r.leader.address)
	return err
}

// body returns the request for all records.
func body(level pb.Freshness) []byte {
	request := &pb.ListJobsRequest{}
	if level != pb.Freshness_FRESHNESS_UNSPECIFIED {
		request.Consistency = &pb.Consistency{Level: level}
	}
	data, err := proto.Marshal(request)
	if err != nil {
		panic(err) // a broken invariant: the message is valid
	}
	return data
}

const listPath = plimsollv1connect.JobServiceListJobsProcedure

// caller returns the caller of a server.
func (r *run) caller(served string, connections int) (*caller, *process) {
	switch served {
	case LeaderEncodes:
		return newCaller(r.leader.address, listPath, body(0), connections), r.leader
	case GatewayStrict:
		return newCaller(r.gateway.address, listPath, body(0), connections), r.gateway
	}
	return newCaller(r.gateway.address, listPath, body(pb.Freshness_FRESHNESS_EVENTUAL), connections), r.gateway
}

// compareAnswers fails unless all servers answer with the same records.
func (r *run) compareAnswers(ctx context.Context) error {
	var first *pb.ListJobsResponse
	for _, served := range []string{LeaderEncodes, GatewayStrict, GatewayEventual} {
		c, _ := r.caller(served, 1)
		var data bytes.Buffer
		_, err := c.copy(ctx, &data, make([]byte, callerBuffer))
		c.close()
		if err != nil {
			return err
		}
		answer := &pb.ListJobsResponse{}
		if err := proto.Unmarshal(data.Bytes(), answer); err != nil {
			return fmt.Errorf("decode the answer of the %s: %w", served, err)
		}
		r.report.AnswerBytes = data.Len()
		answer.AgeNanos = 0
		if first == nil {
			first = answer
		}
		if len(answer.GetJobs()) != records || !proto.Equal(first, answer) {
			return plimsoll.Errorf(
				plimsoll.CodeInternal, "of %q and %q each answers with other records", LeaderEncodes, served,
			)
		}
	}
	return nil
}

// measureCapacity measures how many requests a second the leader can answer.
func (r *run) measureCapacity(ctx context.Context) error {
	r.cfg.Tell("measuring the rate that a leader can do which encodes each record at each request")
	c, _ := r.caller(LeaderEncodes, capacityConnections)
	defer c.close()
	if _, err := c.closed(ctx, capacityConnections, r.cfg.Duration/4); err != nil { // warm
		return err
	}
	began := time.Now()
	answered, err := c.closed(ctx, capacityConnections, r.cfg.Duration)
	r.report.Capacity = float64(answered) / time.Since(began).Seconds()
	if err == nil && answered == 0 {
		err = plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the leader answered nothing within %s; give a longer duration", r.cfg.Duration,
		)
	}
	return err
}

// measureLoads measures all servers at all rates.
func (r *run) measureLoads(ctx context.Context) error {
	for _, percent := range r.cfg.Loads {
		rate := r.report.Capacity * float64(percent) / 100
		for _, served := range []string{LeaderEncodes, GatewayStrict, GatewayEventual} {
			r.cfg.Tell(fmt.Sprintf("measuring at %d %%, %.0f requests a second: %s", percent, rate, served))
			load, err := r.measureLoad(ctx, served, planned(rate, r.cfg.Duration))
			if err != nil {
				return err
			}
			load.Percent, load.Rate = percent, rate
			r.report.Loads = append(r.report.Loads, load)
		}
	}
	return nil
}

func (r *run) measureLoad(ctx context.Context, served string, at []time.Duration) (Load, error) {
	c, server := r.caller(served, openConnections)
	defer c.close()
	if _, err := c.closed(ctx, capacityConnections, r.cfg.Duration/10); err != nil { // warm
		return Load{}, err
	}
	began, leaderBegan, err := r.processorTimes(server)
	if err != nil {
		return Load{}, err
	}
	o, err := c.open(ctx, at, r.cfg.Duration)
	if err != nil {
		return Load{}, err
	}
	ended, leaderEnded, err := r.processorTimes(server)
	load := Load{
		Served: served, P50: o.at(50), P80: o.at(80), P99: o.at(99),
		Answered: len(at) - o.unanswered, Unanswered: o.unanswered,
	}
	load.CPU = perRequest(ended-began, load.Answered)
	if server != r.leader {
		load.Leader = perRequest(leaderEnded-leaderBegan, load.Answered)
	}
	return load, err
}

func (r *run) processorTimes(server *process) (of, leader time.Duration, err error) {
	if of, err = server.processorTime(); err == nil {
		leader, err = r.leader.processorTime()
	}
	return of, leader, err
}

// perRequest returns the microseconds of each of n requests.
func perRequest(took time.Duration, n int) float64 {
	return float64(took.Nanoseconds()) / 1e3 / float64(max(n, 1))
}

// measureBarrier measures the wait of strict reads: strict and eventual ones take turns.
func (r *run) measureBarrier(ctx context.Context) error {
	r.cfg.Tell("measuring the wait of a strict read without other load")
	var callers [2]*caller
	for i, level := range []pb.Freshness{pb.Freshness_FRESHNESS_UNSPECIFIED, pb.Freshness_FRESHNESS_EVENTUAL} {
		request := &pb.GetJobRequest{Id: "job000", Consistency: &pb.Consistency{Level: level}}
		data, err := proto.Marshal(request)
		if err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
		callers[i] = newCaller(r.gateway.address, plimsollv1connect.JobServiceGetJobProcedure, data, 1)
		defer callers[i].close()
	}
	var took [2][]time.Duration
	var over []time.Duration
	buffer := make([]byte, callerBuffer)
	for until := time.Now().Add(r.cfg.Duration); time.Now().Before(until); {
		for i, c := range callers {
			began := time.Now()
			if _, err := c.once(ctx, buffer); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
		last := len(took[0]) - 1
		over = append(over, took[0][last]-took[1][last])
	}
	r.report.Barrier = Barrier{
		Reads: len(over), Strict: milliseconds(median(took[0])), Eventual: milliseconds(median(took[1])),
		Over: milliseconds(median(over)),
	}
	return nil
}

// measureBare measures the gateway beside a bare handler that gets the same requests. They take
// turns, so that a change of the machine meets both.
func (r *run) measureBare(ctx context.Context) (err error) {
	if r.bare, err = start(ctx, r.cfg.Server, roleBare); err != nil {
		return err
	}
	for _, connections := range r.cfg.Connections {
		for _, served := range []string{GatewayEventual, GatewayStrict} {
			r.cfg.Tell(fmt.Sprintf("measuring beside a bare handler, %d connections: %s", connections, served))
			row, err := r.measureBeside(ctx, served, connections)
			if err != nil {
				return err
			}
			r.report.Bare = append(r.report.Bare, row)
		}
	}
	return nil
}

func (r *run) measureBeside(ctx context.Context, served string, connections int) (Bare, error) {
	own, server := r.caller(served, connections)
	defer own.close()
	other := newCaller(r.bare.address, listPath, own.body, connections)
	defer other.close()
	each := r.cfg.Duration / turns
	var costs, bares, ratios []float64
	for turn := range turns + 1 {
		bare, err := costOf(ctx, other, r.bare, connections, each)
		if err != nil {
			return Bare{}, err
		}
		cost, err := costOf(ctx, own, server, connections, each)
		if err != nil {
			return Bare{}, err
		}
		if turn > 0 { // the first is to warm
			costs, bares, ratios = append(costs, cost), append(bares, bare), append(ratios, cost/bare)
		}
	}
	return Bare{connections, served, median(costs), median(bares), median(ratios)}, nil
}

// costOf returns the processor time of a server for a request, in microseconds.
func costOf(ctx context.Context, c *caller, server *process, connections int, lasts time.Duration) (float64, error) {
	began, err := server.processorTime()
	if err != nil {
		return 0, err
	}
	answered, err := c.closed(ctx, connections, lasts)
	if err != nil {
		return 0, err
	}
	ended, err := server.processorTime()
	return perRequest(ended-began, answered), err
}
