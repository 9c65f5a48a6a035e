package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The names of the only partition, and of the cluster and resource manager.
const (
	partition   = "default"
	clusterName = "plimsoll"
)

// route is a path of YuniKorn's interface.
type route struct {
	path   string // a pattern of http.ServeMux, below root unless it begins with a slash
	answer func(a *reading) error
	// narrower says what a caller asks for instead, when the answer would be too large.
	narrower string
	why      string // without answer: why there is none
	moved    string // another path that has the answer
}

// pattern returns the whole path of a route.
func (r *route) pattern() string {
	if strings.HasPrefix(r.path, "/") {
		return r.path
	}
	return root + r.path
}

const (
	inQueue  = "ask for one queue, .../queue/{queue}/applications/active?status={state}"
	oneByOne = "ask for one, .../application/{application}, or call JobService.ListTasks, which has pages"
	byNode   = "ask for one node, .../node/{node}, or call NodeService.ListNodes"
	byQueue  = "ask for one queue, .../queue/{queue}"
	byPart   = "ask for its parts, each of which has a route under /ws/v1"
	byUser   = "ask for one user, .../usage/user/{user}"
	byGroup  = "ask for one group, .../usage/group/{group}"

	noStack = "the stacks of a program help those who write it, and have no bound"
)

// routes returns everything about the state that is known under /ws/v1/.
func routes() []route {
	return []route{
		{path: "clusters", answer: (*reading).clusters},
		{path: "partitions", answer: (*reading).partitions},
		{path: "partition/{partition}/queues", answer: (*reading).queues, narrower: byQueue},
		{path: "partition/{partition}/queue/{queue}", answer: (*reading).queue, narrower: "leave subtree out"},
		{path: "partition/{partition}/nodes", answer: (*reading).nodes, narrower: byNode},
		{path: "partition/{partition}/node/{node}", answer: (*reading).node, narrower: "call JobService.ListTasks"},
		{
			path: "partition/{partition}/queue/{queue}/applications", answer: (*reading).queueApplications,
			narrower: ".../applications/active?status={state}, or " + oneByOne,
		},
		{
			path:   "partition/{partition}/queue/{queue}/applications/{state}",
			answer: (*reading).queueApplicationsIn, narrower: oneByOne,
		},
		{
			path:   "partition/{partition}/queue/{queue}/application/{application}",
			answer: (*reading).application, narrower: "call JobService.ListTasks",
		},
		{path: "partition/{partition}/applications/{state}", answer: (*reading).applicationsIn, narrower: inQueue},
		{
			path: "partition/{partition}/application/{application}", answer: (*reading).application,
			narrower: "call JobService.ListTasks",
		},
		{path: "scheduler/node-utilizations", answer: (*reading).utilizations, narrower: byNode},
		{path: "scheduler/healthcheck", answer: (*reading).health},
		{path: "config", answer: (*reading).config},
		{path: "history/apps", answer: (*reading).applicationHistory},
		{path: "history/containers", answer: (*reading).containerHistory},
		{path: DumpPath, answer: (*reading).dump, narrower: byPart},
		{path: "fullstatedump", moved: DumpPath},
		{path: "metrics", moved: "/metrics"},
		{path: "stack", why: noStack},
		{path: "partition/{partition}/placementrules", answer: (*reading).placementRules},
		{path: "partition/{partition}/usage/users", answer: (*reading).usageOfUsers, narrower: byUser},
		{path: "partition/{partition}/usage/user/{user}", answer: (*reading).usageOfUser},
		{path: "partition/{partition}/usage/groups", answer: (*reading).usageOfGroups, narrower: byGroup},
		{path: "partition/{partition}/usage/group/{group}", answer: (*reading).usageOfGroup},
	}
}

// served names everything that is answered, for errors.
func served() string {
	paths := []string{batchPath, StreamPath, validatePath}
	for _, known := range routes() {
		if known.answer != nil {
			paths = append(paths, known.pattern())
		}
	}
	return strings.Join(paths, ", ")
}

// newMux returns the handlers of all paths.
func (h *Handler) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc(batchPath, h.serveBatch)
	mux.HandleFunc(StreamPath, h.stream)
	mux.HandleFunc(validatePath, h.validate)
	for _, known := range routes() {
		mux.HandleFunc(known.pattern(), func(w http.ResponseWriter, r *http.Request) {
			if known.moved != "" {
				to := url.URL{Path: known.moved, RawQuery: r.URL.RawQuery}
				http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
				return
			}
			if known.answer == nil {
				WriteError(w, http.StatusNotFound, "nothing is served at "+plimsoll.Shorten(r.URL.Path)+": "+known.why)
				return
			}
			h.serveState(w, r, &known)
		})
	}
	list := served()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, http.StatusNotFound, "there is nothing at "+plimsoll.Shorten(r.URL.Path)+"; there are "+list)
	})
	return mux
}

// serveState answers a request about the state of the cluster.
func (h *Handler) serveState(w http.ResponseWriter, r *http.Request, of *route) {
	values, err := parseValues(r.URL.RawQuery, "consistency", "status", "subtree")
	if err != nil {
		h.refuse(w, err)
		return
	}
	consistency, err := plimsoll.ParseConsistency(values.Get("consistency"))
	if err != nil {
		h.refuse(w, err)
		return
	}
	if named := r.PathValue("partition"); named != "" && named != partition {
		h.refuse(w, plimsoll.Errorf(plimsoll.CodeNotFound,
			"Partition not found: there is no %q; the only one is %q", plimsoll.Shorten(named), partition))
		return
	}
	state, err := h.source.Events(r.Context(), consistency)
	if err != nil {
		h.refuse(w, err)
		return
	}
	a := &reading{
		ctx: r.Context(), of: r.PathValue, values: values, accept: r.Header.Get("Accept"), header: w.Header(),
		state: &state, records: state.Records, version: h.cfg.Version, most: h.cfg.AnswerBytes,
		groups: map[string]*jobFacts{}, now: h.cfg.Now(),
	}
	err = of.answer(a)
	if errors.Is(err, errTooLarge) {
		h.cfg.TooLarge()
		message := err.Error()
		if of.narrower != "" {
			message += "; " + of.narrower
		}
		WriteError(w, http.StatusRequestEntityTooLarge, message)
		return
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	setVersion(w.Header(), &state)
	h.write(w, r, append(bytes.TrimSuffix(a.body, []byte{'\n'}), '\n'))
}

// errTooLarge refuses an answer that would take more than Config.AnswerBytes.
var errTooLarge = errors.New("the answer is larger than one may be")

// reading makes one answer about the state.
type reading struct {
	ctx     context.Context //nolint:containedctx // of the one request
	of      func(name string) string
	values  url.Values
	state   *State
	records *replica.Snapshot
	version string
	now     time.Time
	accept  string      // the content types that the caller takes
	header  http.Header // of the answer

	body   []byte
	some   bool // the list that was begun has an element
	size   int  // bytes of JSON made: the body, and the pieces for its next object
	pieces int  // bytes of size that are not in the body yet
	most   int
	looked int

	groups     map[string]*jobFacts // by job
	groupsKept int                  // groups of all jobs in groups
}

// chargeFor is how often the bytes of an answer are charged: for its pieces, the encoded object,
// the body and the room in which it grows.
const chargeFor = 4

// charge counts bytes of JSON.
func (a *reading) charge(n int) error {
	if a.size += n; a.size > a.most {
		return errTooLarge
	}
	return a.state.hold(chargeFor * n)
}

// piece appends a value to a list that is a part of an object. Of the value's bytes, nested are in
// pieces of its own already.
func (a *reading) piece(list []byte, v any, nested int) ([]byte, error) {
	data, err := encode(v)
	if err != nil {
		return nil, err
	}
	added := max(len(data)+1-nested, 0)
	a.pieces += added
	if err := a.charge(added); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		list = append(list, '[')
	} else {
		list[len(list)-1] = ','
	}
	return append(append(list, data...), ']'), nil
}

// add appends a value to the body.
func (a *reading) add(v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	made := a.pieces
	a.pieces = 0
	if err := a.charge(max(len(data)-made, 0)); err != nil {
		return err
	}
	a.body = append(a.body, data...)
	return nil
}

// begin begins a list in the body.
func (a *reading) begin() { a.body, a.some = append(a.body, '['), false }

// element appends to the list that was begun.
func (a *reading) element(v any) error {
	if a.some {
		a.body = append(a.body, ',')
	}
	a.some = true
	return a.add(v)
}

// end ends the list that was begun.
func (a *reading) end() { a.body = append(a.body, ']') }

// lookEvery is the number of records after which a reading asks whether its caller still waits.
const lookEvery = 1024

// look counts a record that was looked at. It fails if the caller has given up.
func (a *reading) look() error {
	if a.looked++; a.looked%lookEvery == 0 && a.ctx.Err() != nil {
		return plimsoll.Errorf(plimsoll.CodeCanceled, "the request was given up while its answer was made")
	}
	return nil
}

// encode returns a value as JSON.
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeInternal, "encode a part of an answer: %v", err)
	}
	return data, nil
}

// undecodable is the error of a record that cannot be read.
func undecodable(key string, err error) error {
	return plimsoll.Errorf(plimsoll.CodeCorrupt, "decode the record %q: %v", key, err)
}

// clusterInfo is an element of /clusters.
type clusterInfo struct {
	RMBuildInformation []map[string]string `json:"rmBuildInformation,omitempty"`
	Partition          string              `json:"partition"`
	ClusterName        string              `json:"clusterName"`
}

func (a *reading) clusters() error {
	a.begin()
	defer a.end()
	build := map[string]string{"rmId": clusterName}
	if a.version != "" {
		build["buildVersion"] = a.version
	}
	return a.element(clusterInfo{
		RMBuildInformation: []map[string]string{build}, Partition: partition, ClusterName: clusterName,
	})
}

// partitionInfo is an element of /partitions.
type partitionInfo struct {
	ClusterID              string            `json:"clusterId"`
	Name                   string            `json:"name"`
	Capacity               partitionCapacity `json:"capacity"`
	NodeSortingPolicy      nodeSortingPolicy `json:"nodeSortingPolicy"`
	PreemptionEnabled      bool              `json:"preemptionEnabled"`
	QuotaPreemptionEnabled bool              `json:"quotaPreemptionEnabled"`
	TotalNodes             int               `json:"totalNodes,omitempty"`
	Applications           map[string]int    `json:"applications,omitempty"`
	TotalContainers        int64             `json:"totalContainers,omitempty"`
	State                  string            `json:"state,omitempty"`
	ID                     string            `json:"id"` // unicorn-history-server reads it
}

type partitionCapacity struct {
	Capacity     amounts `json:"capacity"`
	UsedCapacity amounts `json:"usedCapacity"`
	Utilization  amounts `json:"utilization"`
}

type nodeSortingPolicy struct {
	Type            string             `json:"type"`
	ResourceWeights map[string]float64 `json:"resourceWeights"`
}

const (
	stateActive   = "Active"
	stateDraining = "Draining"
)

func (a *reading) partitions() error {
	total, err := a.totals()
	if err != nil {
		return err
	}
	policy, err := a.nodeSorting()
	if err != nil {
		return err
	}
	counts := map[string]int{"total": a.records.Len(wire.KindJobStatus)}
	for state := range plimsoll.JobState(plimsoll.NumJobStates) {
		if !state.Known() {
			continue
		}
		if n := a.records.JobRange(replica.JobCriteria{States: []plimsoll.JobState{state}}).Len(); n > 0 {
			counts[state.String()] = n
		}
	}
	a.begin()
	defer a.end()
	return a.element(partitionInfo{
		ClusterID: clusterName, Name: partition,
		Capacity: partitionCapacity{
			Capacity: total.capacity, UsedCapacity: total.allocated,
			Utilization: percentages(total.allocated, total.capacity),
		},
		NodeSortingPolicy: policy, TotalNodes: total.nodes, Applications: counts, TotalContainers: total.tasks,
		State: stateActive, ID: partition,
	})
}

// nodeSorting returns the order of nodes that the queue file states. Without one the stages of the
// cell's placement order them, which are configured at its leader: neither of YuniKorn's names
// describes them.
func (a *reading) nodeSorting() (p nodeSortingPolicy, err error) {
	config, _, err := a.queueConfig()
	if err != nil || config.Partition == nil || config.Partition.NodeSort == nil {
		return nodeSortingPolicy{Type: "placement", ResourceWeights: map[string]float64{}}, err
	}
	sort := config.Partition.NodeSort
	p = nodeSortingPolicy{Type: "fair", ResourceWeights: map[string]float64{}}
	if sort.Binpacking {
		p.Type = "binpacking"
	}
	for name, weight := range sort.Weights {
		p.ResourceWeights[yunikornName(name)] = weight
	}
	if len(sort.Weights) == 0 {
		p.ResourceWeights[vcore], p.ResourceWeights[plimsoll.Memory] = 1, 1
	}
	return p, nil
}

// totals are sums over all nodes.
type totals struct {
	nodes               int
	tasks               int64
	capacity, allocated amounts
}

func (a *reading) totals() (t totals, err error) {
	t.capacity, t.allocated = amounts{}, amounts{}
	for id := range a.records.Scan(wire.KindNode, "", "") {
		node, status, err := a.nodeRecords(id)
		if err != nil {
			return t, err
		}
		t.nodes++
		t.tasks += int64(status.Tasks)
		t.capacity.add(node.Capacity, 1)
		t.allocated.add(status.Allocated, 1)
	}
	return t, nil
}
