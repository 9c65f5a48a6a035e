package placement_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

// differences are the cases in which this package differs from the original on purpose, by id, with
// the reason. DESIGN.md has them as a table.
var differences = map[string]string{
	"capacity/001":                    rounds,
	"capacity/004":                    capless,
	"capacity/034":                    capless,
	"calculate-server-unreserved/006": capless,
	"hard-filter-owners-servers/002":  refuses,
	"hard-filter-owners-servers/003":  refuses,
	"hard-filter-volumes-from/000":    twice,
	"score-current-platform/012":      weightless,
	"score-next-reboot/008":           weightless,
	"score-unreserved-disk/011":       weightless,
}

// The reasons.
const (
	rounds     = "the original adds up rounded parts of a percent and comes to one percent less than there is"
	capless    = "the original's free cpu depends on the order of the machines if one has no cap; ours does not (fault 9)"
	refuses    = "the original drops every server when an owner rule is not understood; ours refuses the chain when it is made"
	twice      = "one machine is on two servers, which the original takes; ours refuses the request for its volumes"
	weightless = "without a weight the original's scores are no numbers; ours are 0 (fault 11)"
)

// today is the time of cases that do not say one: long after whatever happened in them.
const today = 1_795_000_000

// most is how many of the cases may differ: 2 % of the 547.
const most = 10

type conformanceFile struct {
	Kind   string
	Plugin string
	Chains map[string]json.RawMessage
	Cases  []conformanceCase
}

type conformanceCase struct {
	ID, Name, Fn string
	Input        struct {
		Servers     []json.RawMessage
		Opts        options
		External    external
		Random      []float64
		NowMS       int64 `json:"now_ms"`
		Chain       string
		VM          json.RawMessage
		Img         json.RawMessage
		Pkg         json.RawMessage
		Tickets     json.RawMessage
		Defaults    json.RawMessage
		Expr        json.RawMessage
		Weight      float64
		VMs         map[string]json.RawMessage `json:"vms_by_server"`
		Change      json.RawMessage            `json:"change_defaults"`
		NICTags     json.RawMessage            `json:"nic_tags"`
		NICTagNeeds json.RawMessage            `json:"nic_tag_requirements"`
	}
	Expect struct {
		Throws     string
		Remaining  []string
		ServerSets map[string]map[string]any `json:"server_sets"`
		Server     *string
		Score      any
		Steps      []struct {
			Step      string
			Remaining []string
		}
		Called []struct {
			Stub  string
			Given []string
		}
		Capacities map[string]map[string]float64
		Scores     []float64
		Status     int
		Message    string
	}
}

type options struct {
	VM, Img, Pkg, Tickets, Defaults json.RawMessage
}

type external struct {
	GetVM        []answer `json:"getVm"`
	GetServerVMs []answer `json:"getServerVms"`
}

type answer struct {
	Args   []json.RawMessage
	Err    any
	Result json.RawMessage
}

// TestConformance holds the chain and the profile for Triton against the answers of the original:
// the cases of the folder that PLACEMENT_CONFORMANCE names, and some of our own. Both must agree on
// the servers that remain, the amounts free on them, their scores and the chosen one.
func TestConformance(t *testing.T) {
	t.Run("own", func(t *testing.T) { conform(t, filepath.Join("testdata", "conformance")) })
	folder := os.Getenv("PLACEMENT_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "shared", "conformance", "placement")
	}
	t.Run("original", func(t *testing.T) {
		if _, err := os.Stat(folder); err != nil {
			t.Skipf(
				"there are no cases of the original here: %s; PLACEMENT_CONFORMANCE names the folder that has them",
				err,
			)
		}
		conform(t, folder)
		if n := len(differences); n > most {
			t.Errorf("%d cases differ on purpose; at most %d may", n, most)
		}
	})
}

func conform(t *testing.T, folder string) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	ran, purposely := 0, 0
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file conformanceFile
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatalf("%s: %s", name, err)
		}
		for i := range file.Cases {
			c := &file.Cases[i]
			ran++
			t.Run(c.ID, func(t *testing.T) {
				faults := file.check(t, c)
				reason, listed := differences[c.ID]
				switch {
				case c.Expect.Throws != "": // the original crashed: ours must not, and it did not
				case listed && len(faults) == 0:
					t.Errorf("%s: it is listed as different (%s), but agrees", c.Name, reason)
				case listed:
					purposely++
				case len(faults) > 0:
					t.Errorf("%s:\n%s", c.Name, strings.Join(faults, "\n"))
				}
			})
		}
	}
	t.Logf("%d cases ran, %d of them differ on purpose", ran, purposely)
	if ran == 0 {
		t.Errorf("%s holds no case", folder)
	}
}

// check runs a case and says where it differs.
func (f *conformanceFile) check(t *testing.T, c *conformanceCase) []string {
	switch f.Kind {
	case "chain-rfd60":
		return f.checkChain(t, c)
	case "capacity":
		return checkCapacity(t, c)
	case "dispatch":
		return checkDispatch(t, c)
	case "batch":
		return f.checkBatch(t, c)
	case "scorer":
		return checkScorer(t, c)
	}
	return checkPlugin(t, f.Plugin, c)
}

// rig is a fleet of Triton's records with a chain and a request.
type rig struct {
	profile  *triton.Profile
	fleet    *placement.Fleet
	servers  map[string]map[string]any // the records as they are, by id
	ids      []string
	settings placement.Settings
	stages   []placement.Stage
	loaded   []string // servers whose instances were loaded
	refused  error    // why there is no chain, or no request
}

func newRig(t *testing.T, defaults json.RawMessage) *rig {
	t.Helper()
	r := &rig{fleet: placement.NewFleet(placement.NewNames()), servers: map[string]map[string]any{}}
	var err error
	if r.profile, err = triton.New(r.fleet.Names); err != nil {
		t.Fatal(err)
	}
	if r.settings, err = triton.Settings(defaults); err != nil {
		t.Fatal(err)
	}
	r.stages = r.profile.Stages()
	return r
}

// add puts servers into the fleet. Those without an id get one by their place. bare records are
// fragments, whose faults do not count.
func (r *rig) add(t *testing.T, records []json.RawMessage, bare bool) {
	t.Helper()
	for i, raw := range records {
		var o map[string]any
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		full := maps.Clone(o)
		if full["uuid"] == nil {
			full["uuid"] = fmt.Sprintf("#%d", i)
		}
		s, err := r.profile.Server(encode(t, full))
		if err != nil {
			t.Fatal(err)
		}
		if bare {
			s.Fault = ""
		}
		r.servers[s.ID] = o
		r.ids = append(r.ids, s.ID)
		r.fleet.Add(&s)
	}
}

func (r *rig) tickets(t *testing.T, raw json.RawMessage) {
	t.Helper()
	list, err := r.profile.Tickets(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range list {
		if r.fleet.Slot(ticket.Server) < 0 {
			continue
		}
		if err := r.fleet.AddTicket(ticket); err != nil {
			t.Fatal(err)
		}
	}
}

// lazy makes the fleet load instances from recorded answers, as far as there are some.
func (r *rig) lazy(e *external) {
	if e.GetServerVMs != nil {
		r.fleet.Loader.Within = time.Second
		r.fleet.Loader.Instances = func(server string) ([]placement.Instance, error) {
			r.loaded = append(r.loaded, server)
			for _, a := range e.GetServerVMs {
				if strings.Trim(string(a.Args[0]), `"`) == server {
					if a.Err != nil {
						return nil, fmt.Errorf("%v", a.Err)
					}
					return r.profile.Instances(a.Result)
				}
			}
			return nil, fmt.Errorf("nobody knows %s", server)
		}
	}
	if e.GetVM != nil {
		r.fleet.Loader.Instance = func(id string) (server, owner string, err error) {
			for _, a := range e.GetVM {
				if !strings.Contains(string(a.Args[0]), id) {
					continue
				}
				if a.Err != nil {
					return "", "", fmt.Errorf("%v", a.Err)
				}
				var vm struct {
					Server string `json:"server_uuid"`
					Owner  string `json:"owner_uuid"`
				}
				err := json.Unmarshal(a.Result, &vm)
				return vm.Server, vm.Owner, err
			}
			return "", "", fmt.Errorf("nobody knows %s", id)
		}
	}
}

// run runs a chain over all servers in their order.
func (r *rig) run(
	t *testing.T, e placement.Expression, request *placement.Request, now int64, random []float64,
) placement.Run {
	t.Helper()
	chain, err := placement.NewChain(e, r.stages, nil, r.settings)
	if err != nil {
		r.refused = err
		return placement.Run{}
	}
	p, err := chain.Prepare(r.fleet, request)
	if err != nil {
		r.refused = err
		return placement.Run{}
	}
	defer p.Release()
	pl := placement.NewPlacer(r.fleet, rand.NewPCG(1, 2))
	return pl.RunInOrder(p, now, func(n int) int {
		if len(random) == 0 {
			return 0
		}
		x := random[0]
		random = random[1:]
		return int(math.Floor(x * float64(n)))
	})
}

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unlike compares two lists of ids, as sets unless their order counts.
func unlike(what string, got, want []string, ordered bool) []string {
	if !ordered {
		got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	}
	if slices.Equal(got, want) {
		return nil
	}
	return []string{fmt.Sprintf("%s: got %v, want %v", what, got, want)}
}

func (c *conformanceCase) now() int64 {
	if c.Input.NowMS > 0 {
		return c.Input.NowMS / 1000
	}
	return today
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
