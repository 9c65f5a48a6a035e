package fleetjson_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

const wholeServer = `{"id": "n1", "setup": false, "status": "unknown", "reserved": "cordoned", "headnode": true,
	"reservoir": true, "capacity": {"cpu": 8, "memory": "32Gi", "disk": 1e12, "gpu": 2},
	"reserve": {"memory": 0.15}, "overprovision": {"cpu": 4}, "traits": {"ssd": true, "hdd": false,
	"tier": "gold", "gpu": ["a100", "h100"]}, "networks": {"external": true, "storage": false},
	"release": "7.0", "platform": "20260114T101500Z", "lastBoot": "2026-01-31T08:00:00+01:00",
	"nextReboot": 1800000000, "maxTasks": 256, "labels": {"rack": "r1"}, "instances": [{"id": "i1",
	"owner": "alice", "job": "web", "group": "front", "labels": {"app": "web"}, "resources": {"cpu": "500m",
	"memory": "1Gi"}, "failed": true, "left": {"disk": "2Gi"}, "modified": 1700000000}, {}]}`

func whole() placement.Server {
	s := placement.NewServer("n1", plimsoll.Resources{"cpu": 8000, "memory": 32 << 30, "disk": 1e12, "gpu": 2})
	s.Setup, s.Status, s.Reserved = false, "unknown", "cordoned"
	s.Labels = map[string]string{"rack": "r1"}
	s.NodeFacts = plimsoll.NodeFacts{
		Traits: map[string]plimsoll.Trait{
			"ssd": {Flag: true}, "hdd": {}, "tier": {Words: []string{"gold"}}, "gpu": {Words: []string{"a100", "h100"}},
		},
		Networks: map[string]bool{"external": true, "storage": false}, Release: "7.0", Platform: "20260114T101500Z",
		Headnode:  true,
		Reservoir: true, Reserve: map[string]float64{"memory": 0.15}, Overprovision: map[string]float64{"cpu": 4},
		LastBoot:   1769842800,
		NextReboot: 1800000000, MaxTasks: 256,
	}
	s.Instances = []placement.Instance{{
		ID: "i1", Owner: "alice", Job: "web", Group: "front", Labels: map[string]string{"app": "web"},
		Resources: plimsoll.Resources{"cpu": 500, "memory": 1 << 30}, Failed: true,
		Left: plimsoll.Resources{"disk": 2 << 30}, Modified: 1700000000,
	}, {}}
	return s
}

// Everything that can be said of a server is read, in a bare list and in a document with other
// fields.
func TestServersAreRead(t *testing.T) {
	for _, text := range []string{
		"[" + wholeServer + "]", `{"made": {"by": "hand"}, "servers": [` + wholeServer + "]}",
	} {
		servers, err := fleetjson.ReadServers([]byte(text))
		if d := cmp.Diff([]placement.Server{whole()}, servers); err != nil || d != "" {
			t.Errorf("%v, -want +got:\n%s", err, d)
		}
	}
}

// An absent or null field has its default; short forms mean the same as long ones.
func TestServersHaveDefaults(t *testing.T) {
	servers, err := fleetjson.ReadServers([]byte(`[{"id": "a"}, {"id": "b", "setup": null,
	"status": null, "capacity": null, "networks": null},
		{"id": "c", "reserved": true, "resources": {"memory": 1024}, "networks": ["x", "y"]}, {"id": "d",
		"reserved": false, "networks": []}]`))
	if err != nil {
		t.Fatal(err)
	}
	c := placement.NewServer("c", plimsoll.Resources{"memory": 1024})
	c.Reserved, c.Networks = "reserved", map[string]bool{"x": true, "y": true}
	d := placement.NewServer("d", nil)
	d.Networks = map[string]bool{}
	want := []placement.Server{placement.NewServer("a", nil), placement.NewServer("b", nil), c, d}
	if d := cmp.Diff(want, servers); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A record that cannot be used becomes a server with a fault that names the field; the others stay
// as they are.
func TestBadRecordsBecomeFaults(t *testing.T) {
	manyTraits := `{"id": "x", "traits": {` + strings.TrimSuffix(strings.Repeat(`"t%d": true, `, 10_000), ", ") + "}}"
	for i := range 10_000 {
		manyTraits = strings.Replace(manyTraits, "%d", fmt.Sprint(i), 1)
	}
	manyResources := `{"id": "x", "instances": [{"resources": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1,
		"g": 1, "h": 1, "i": 1, "j": 1, "k": 1, "l": 1, "m": 1, "n": 1, "o": 1, "p": 1, "q": 1}}]}`
	for _, test := range []struct{ record, want string }{
		{`5`, "the record is a number; write an object"},
		{`null`, "the record is null; write an object"},
		{`{}`, "id: is empty"},
		{`{"id": 7}`, "id: is a number; write a text in quotes"},
		{`{"id": "x", "setup": "yes"}`, "setup: is a text; write true or false"},
		{`{"id": "x", "status": 1}`, "status: is a number"},
		{`{"id": "x", "reserved": 1}`, "reserved: is a number; write true, false, or why"},
		{`{"id": "x", "rack": "r1"}`, "rack: is not a field that is known here; there are id, setup,"},
		{`{"id": "x", "ID": "y"}`, "ID: is not a field that is known here"},
		{`{"id": "x", "capacity": []}`, "capacity: is a list; write an object"},
		{`{"id": "x", "capacity": {"cpu":{}}}`, "capacity.cpu: is an object; write an amount, such as 2"},
		{`{"id": "x", "capacity": {"cpu": -1}}`, `capacity.cpu: quantity "-1" is negative; give zero or more`},
		{`{"id": "x", "capacity": {"disk": "-5Gi"}}`, `capacity.disk: quantity "-5Gi" is negative`},
		{`{"id": "x", "capacity": {"memory": "lots"}}`, `capacity.memory: quantity "lots" cannot be read`},
		{`{"id": "x", "capacity": {"memory": 1e40}}`, "absurdly large"},
		{`{"id": "x", "capacity": {"no such": 1}}`, "capacity.no such: a resource name is made of"},
		{`{"id": "x", "capacity": {}, "resources": {}}`, "resources: is the same as capacity; give one of them"},
		{`{"id": "x", "overprovision": {"cpu": 0}}`, "overprovision.cpu: is 0; give a ratio above 0"},
		{`{"id": "x", "overprovision": {"cpu": 1e9}}`, "overprovision.cpu: is 1e+09"},
		{`{"id": "x", "overprovision": {"cpu": 1e999}}`, "overprovision.cpu: is too large a number"},
		{`{"id": "x", "overprovision": {"cpu": "4"}}`, "overprovision.cpu: is a text; write a number"},
		{`{"id": "x", "reserve": {"memory": 1}}`, "reserve.memory: is 1; give a part from 0 to below 1"},
		{`{"id": "x", "reserve": {"memory": -0.5}}`, "reserve.memory: is -0.5"},
		{`{"id": "x", "traits": {"ssd": 1}}`, "traits.ssd: is a number; write true, false, a word or a list of words"},
		{`{"id": "x", "traits": {"ssd": null}}`, "traits.ssd: is null"},
		{`{"id": "x", "traits": {"ssd": ["a", 1]}}`, "traits.ssd[1]: is a number"},
		{manyTraits, "traits: has 10000 entries; at most 64 are possible"},
		{`{"id": "x", "networks": {"a": 1}}`, "networks.a: is a number; write true or false"},
		{`{"id": "x", "networks": "a"}`, "networks: is a text; write an object"},
		{`{"id": "x", "lastBoot": "yesterday"}`, `lastBoot: "yesterday" is not an instant`},
		{`{"id": "x", "lastBoot": 1.5}`, "lastBoot: is 1.5; write whole seconds since 1970"},
		{`{"id": "x", "nextReboot": -1}`, "nextReboot: is -1; write whole seconds"},
		{`{"id": "x", "nextReboot": true}`, "nextReboot: is true; write whole seconds"},
		{`{"id": "x", "labels": {"rack": 1}}`, "labels.rack: is a number"},
		{`{"id": "x", "instances": {}}`, "instances: is an object; write a list"},
		{`{"id": "x", "instances": [{}, 1]}`, "instances[1]: is a number; write an object"},
		{
			`{"id": "x", "instances": [{"resources": {"cpu": "-1"}}]}`,
			"instances[0].resources.cpu: quantity \"-1\" is negative",
		},
		{`{"id": "x", "instances": [{"resources": {"c p u": "1"}}]}`, "instances[0].resources.c p u: a resource name"},
		{`{"id": "x", "instances": [{"vm": true}]}`, "instances[0].vm: is not a field"},
		{`{"id": "x", "id": "y"}`, "id: is given twice; give it once"},
		{manyResources, "instances[0].resources: has 17 names; at most 16 are possible"},
		{`{"id": "x", "fault": "does not answer"}`, "does not answer"},
	} {
		record, want := test.record, test.want
		servers, err := fleetjson.ReadServers([]byte(`[{"id": "a"}, ` + record + `, {"id": "z"}]`))
		if err != nil || len(servers) != 3 {
			t.Errorf("%.80s: %d servers, %v", record, len(servers), err)
			continue
		}
		s := servers[1]
		if !strings.Contains(s.Fault, want) || s.ID == "" || servers[0].Fault != "" || servers[2].Fault != "" {
			t.Errorf("%.80s: server %q has the fault %.200q; want %q", record, s.ID, s.Fault, want)
		}
	}
}

// A server without an id of its own is named by its place in the list. It takes the place of
// none of the others.
func TestServersWithoutAnIDOfTheirOwn(t *testing.T) {
	servers, err := fleetjson.ReadServers([]byte(`[{"id": "a"}, {}, {"id": "servers[1]"}, {"id": "a"}]`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range servers {
		got = append(got, servers[i].ID+": "+servers[i].Fault)
	}
	want := []string{
		"a: ", "servers[1]': id: is empty; give each server its own id", "servers[1]: ",
		`servers[3]: id: "a" is the id of servers[0] already; give each server its own`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A document that holds no list of servers is an error that says where.
func TestNoListOfServers(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "line 1, column 1: unexpected end of JSON input",
		"[{\"id\": \"a\"},\n {\"id\" 1}]": "line 2, column 8: invalid character '1' after object key",
		"\n  7":                           `line 2, column 3: it is a number; write a list of servers, or {"servers": [ … ]}`,
		`"n1"`:                            "line 1, column 1: it is a text",
		`null`:                            "line 1, column 1: it is null",
		`{}`:                              `line 1, column 1: the field "servers" is nothing`,
		`{"servers": {"id": "a"}}`:        `line 1, column 1: the field "servers" is an object`,
		`[] []`:                           "line 1, column 4: invalid character '[' after top-level value",
	} {
		servers, err := fleetjson.ReadServers([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || servers != nil {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

const wholeRequest = `{"owner": "alice", "job": "train", "group": "workers", "resources": {"cpu": 2, "gpu": 1},
	"constraints": { "traits": {"ssd": true, "gpu": ["a100", "h100"]}, "networks": ["external", ["a", "b"]],
	"platform": {"min": "20250101T000000Z", "max": {"7.0": "20270101T000000Z"}}, "volumesFrom": ["db.main.0"],
	"near": [{"task": "db.main.0"}, {"job": "cache"}], "far": [{"label": "app=db"}], "spread": [{"by": "rack",
	"maxSkew": 2}, {"by": "zone"}, "node"], "nodes": ["n1", "gpu-*"], "reservoir": "never", "class": {"cpu": 4},
	"where": "node.labels.zone == \"a\""}, "preferences": {"near": [{"job": "a"}], "far": [{"job": "b"}],
	"spread": ["rack", {"by": "zone"}], "strategy": "spread"},
	"platforms": [{"min": {"6.5": "20240101T000000Z"}}], "needs": {"cpu": "1500m"}, "ownOnly": true,
	"anyClass": true, "except": [{"server": "n7", "why": "evicted"}]}`

func wholeOfRequest() placement.Request {
	return placement.Request{
		Owner: "alice", Job: "train", Group: "workers", Resources: plimsoll.Resources{"cpu": 2000, "gpu": 1},
		Constraints: plimsoll.Constraints{
			Traits:   map[string]plimsoll.Trait{"ssd": {Flag: true}, "gpu": {Words: []string{"a100", "h100"}}},
			Networks: [][]string{{"external"}, {"a", "b"}},
			Platform: plimsoll.PlatformRange{
				Min: map[string]string{"": "20250101T000000Z"}, Max: map[string]string{"7.0": "20270101T000000Z"},
			},
			VolumesFrom: []string{"db.main.0"},
			Near:        []plimsoll.Selector{{Task: "db.main.0"}, {Job: "cache"}},
			Far:         []plimsoll.Selector{{Label: "app=db"}},
			Spread: []plimsoll.Spread{
				{By: "rack", MaxSkew: 2}, {By: "zone", MaxSkew: 1}, {By: "node", MaxSkew: 1},
			},
			Nodes: []string{"n1", "gpu-*"}, Reservoir: plimsoll.ReservoirNever,
			Class: map[string]float64{"cpu": 4},
			Where: `node.labels.zone == "a"`,
		},
		Preferences: plimsoll.Preferences{
			Near: []plimsoll.Selector{{Job: "a"}}, Far: []plimsoll.Selector{{Job: "b"}},
			Spread: []plimsoll.Spread{{By: "rack"}, {By: "zone"}}, Strategy: plimsoll.StrategySpread,
		},
		Platforms: []plimsoll.PlatformRange{{Min: map[string]string{"6.5": "20240101T000000Z"}}},
		Needs:     plimsoll.Resources{"cpu": 1500}, OwnOnly: true, AnyClass: true,
		Except: []placement.Exclusion{{Server: "n7", Why: "evicted"}},
	}
}

// The whole server and the whole request, with which reading and writing are tested, leave no field
// out but those that say nothing to placement.
func TestNoFieldIsLeftOut(t *testing.T) {
	s, r := whole(), wholeOfRequest()
	for _, v := range []any{s, s.NodeFacts, s.Instances[0], r, r.Constraints, r.Preferences} {
		v := reflect.ValueOf(v)
		for i := range v.NumField() {
			if name := v.Type().Field(
				i,
			).Name; v.Field(i).IsZero() && name != "Fault" && name != "Setup" && name != "Metrics" {
				t.Errorf("%s.%s is not set", v.Type().Name(), name)
			}
		}
	}
}

// Everything that can be asked for is read, under the names of a job file.
func TestRequestsAreRead(t *testing.T) {
	got, err := fleetjson.ReadRequest([]byte(wholeRequest))
	if d := cmp.Diff(wholeOfRequest(), got); err != nil || d != "" {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
}

// A request that cannot be used is an error that names the field.
func TestBadRequests(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{`, "line 1, column 1: unexpected end of JSON input"},
		{`[]`, "the request is a list; write an object"},
		{`{"cpu": 1}`, "cpu: is not a field that is known here; there are owner, job, group, resources,"},
		{`{"owner": 1}`, "owner: is a number; write a text in quotes"},
		{`{"resources": "all"}`, "resources: is a text; write an object"},
		{`{"resources": {"cpu": "-1"}}`, `resources.cpu: quantity "-1" is negative`},
		{`{"constraints": {"trait": {}}}`, "constraints.trait: is not a field"},
		{`{"constraints": {"traits": {"a": 1}}}`, "constraints.traits.a: is a number"},
		{`{"constraints": {"networks": [["a", 1]]}}`, "constraints.networks[0][1]: is a number"},
		{`{"constraints": {"networks": {"a": true}}}`, "constraints.networks: is an object; write a list"},
		{`{"constraints": {"platform": {"min": 7}}}`, "constraints.platform.min: is a number; write an object"},
		{`{"constraints": {"near": ["db"]}}`, "constraints.near[0]: is a text; write an object"},
		{
			`{"constraints": {"near": [{"job": "a", "task": "b"}]}}`,
			"constraints.near[0]: names 2 things; give one of task, job or label",
		},
		{`{"constraints": {"far": [{}]}}`, "constraints.far[0]: names 0 things"},
		{`{"constraints": {"spread": [{"maxSkew": 2}]}}`, "constraints.spread[0]: does not say by what"},
		{
			`{"constraints": {"spread": [{"by": "rack", "maxSkew": 0}]}}`,
			"constraints.spread[0].maxSkew: is 0; write a whole number from 1",
		},
		{`{"constraints": {"spread": [{"by": "rack", "maxSkew": "a"}]}}`, "constraints.spread[0].maxSkew: is a text"},
		{
			`{"constraints": {"reservoir": "maybe"}}`,
			`constraints.reservoir: "maybe" is not known; use last, never, only`,
		},
		{`{"constraints": {"class": {"cpu": 5000}}}`, "constraints.class.cpu: is 5000; give a ratio above 0"},
		{`{"preferences": {"strategy": "best"}}`, `preferences.strategy: "best" is not known; use default, pack`},
		{
			`{"preferences": {"spread": [{"by": "a", "maxSkew": 1}]}}`,
			"preferences.spread[0].maxSkew: is not a field that is known here; there are by",
		},
		{`{"platforms": {}}`, "platforms: is an object; write a list"},
		{`{"ownOnly": 1}`, "ownOnly: is a number"},
		{`{"constraints": {"nodes": [` + strings.Repeat(`"a",`, 256) + `"a"]}}`, "constraints.nodes: has 257 entries"},
	} {
		text, want := test.text, test.want
		got, err := fleetjson.ReadRequest([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%.80s: %v; want %q", text, err, want)
		}
		if d := cmp.Diff(placement.Request{}, got); d != "" {
			t.Errorf("%.80s: something is left:\n%s", text, d)
		}
	}
}

// A request and servers that are written are read back as they were, all together and one by one.
func TestWhatIsWrittenIsRead(t *testing.T) {
	plain, bad := placement.NewServer("n2", nil), placement.NewServer("n3", plimsoll.Resources{"cpu": 1, "memory": 0})
	plain.Networks = map[string]bool{}
	bad.Fault, bad.Status = "it is on fire", ""
	servers := []placement.Server{whole(), plain, bad}
	data, err := fleetjson.WriteServers(servers)
	if err != nil {
		t.Fatal(err)
	}
	got, err := fleetjson.ReadServers(data)
	if d := cmp.Diff(servers, got); err != nil || d != "" {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	for _, want := range servers {
		data, err := fleetjson.WriteServer(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := fleetjson.ReadServer(data)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v, -want +got:\n%s", err, d)
		}
	}
	for _, want := range []placement.Request{wholeOfRequest(), {}} {
		data, err := fleetjson.WriteRequest(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := fleetjson.ReadRequest(data)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v, -want +got:\n%s", err, d)
		}
	}
	empty, err := fleetjson.WriteRequest(&placement.Request{})
	if err != nil || string(empty) != "{}" {
		t.Errorf("an empty request is written as %s, %v", empty, err)
	}
}

// Reading any bytes does not panic, and a fleet that is read is written and read as the same fleet.
func FuzzReadServers(f *testing.F) {
	for _, seed := range []string{
		"[" + wholeServer + "]", `{"servers": [{"id": "a"}, {"id": "a"}, {}, 5, null]}`,
		`[{"id": "a", "traits": {"b": []}, "networks": []}]`,
		`[{"id": "a", "capacity": {"cpu": "1.0001"}, "overprovision": {"cpu": 1e-9}}]`, `{`, ``,
		`[{"id": "\ud800", "lastBoot": "2026-01-31T08:00:00Z"}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := fleetjson.ReadServers(data)
		if err != nil {
			return
		}
		written, err := fleetjson.WriteServers(servers)
		if err != nil {
			t.Fatal(err)
		}
		again, err := fleetjson.ReadServers(written)
		if d := cmp.Diff(servers, again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%v, -first +second:\n%s", err, d)
		}
		fleet := placement.NewFleet(placement.NewNames())
		for i := range servers {
			fleet.Add(&servers[i])
		}
		if fleet.Servers() != len(servers) {
			t.Errorf("the fleet has %d servers of %d", fleet.Servers(), len(servers))
		}
	})
}

// Reading any bytes does not panic, and a request that is read is written and read as the same
// request.
func FuzzReadRequest(f *testing.F) {
	for _, seed := range []string{
		wholeRequest, `{}`, `{"constraints": {"networks": [], "traits": {"a": []}}}`, `{"resources": {"cpu": "1n"}}`,
		`[`, `{"platforms": [{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		request, err := fleetjson.ReadRequest(data)
		if err != nil {
			return
		}
		written, err := fleetjson.WriteRequest(&request)
		if err != nil {
			t.Fatal(err)
		}
		again, err := fleetjson.ReadRequest(written)
		if d := cmp.Diff(request, again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%v, -first +second:\n%s", err, d)
		}
	})
}

// BenchmarkReadServers reads 1,000 servers with fifty instances each.
func BenchmarkReadServers(b *testing.B) {
	var servers []placement.Server
	for i := range 1000 {
		s := placement.NewServer(
			fmt.Sprint("n", i), plimsoll.Resources{"cpu": 64_000, "memory": 256 << 30, "disk": 4 << 40},
		)
		for k := range 50 {
			s.Instances = append(s.Instances, placement.Instance{
				ID: fmt.Sprint(i, ".", k), Owner: "alice", Job: "web",
				Resources: plimsoll.Resources{"cpu": 500, "memory": 1 << 30},
			})
		}
		servers = append(servers, s)
	}
	data, err := fleetjson.WriteServers(servers)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fleetjson.ReadServers(data); err != nil {
			b.Fatal(err)
		}
	}
}
