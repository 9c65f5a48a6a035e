package triton_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

const record = `{"uuid": "cn1", "setup": true, "status": "running", "reserved": false,
	"reservation_ratio": 0.25, "memory_total_bytes": 68719476736, "memory_available_bytes": 0,
	"disk_pool_size_bytes": 1099511627776, "disk_pool_alloc_bytes": 0, "disk_system_used_bytes": 0,
	"disk_installed_images_used_bytes": 0, "disk_cores_quota_used_bytes": 0, "disk_zone_quota_bytes": 0,
	"disk_zone_quota_used_bytes": 0, "disk_kvm_quota_bytes": 0, "disk_kvm_zvol_volsize_bytes": 0,
	"overprovision_ratios": {"ram": 1}, "sysinfo": {"CPU Total Cores": 8, "Live Image": "20240101T000000Z",
	"Network Interfaces": {"net0": {"Link Status": "up", "NIC Names": ["external"]}}},
	"vms": {"vm1": {"owner_uuid": "ann", "brand": "bhyve", "max_physical_memory": 1024, "cpu_cap": 200,
	"state": "running"}}}`

func Example() {
	fleet := placement.NewFleet(placement.NewNames())
	profile, err := triton.New(fleet.Names)
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := profile.Server([]byte(record))
	if err != nil {
		fmt.Println(err)
		return
	}
	fleet.Add(&server)

	settings, err := triton.Settings([]byte(`{"weight_unreserved_ram": 2}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, err := placement.NewChain(placement.DefaultExpression(), profile.Stages(), nil, settings)
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := profile.Request(triton.Order{
		VM: []byte(
			`{"owner_uuid": "bob", "brand": "joyent", "ram": 2048, "cpu_cap": 100, "nic_tags": ["external"]}`,
		),
		Package: []byte(`{"max_physical_memory": 2048, "cpu_cap": 100, "quota": 10240}`),
		Image:   []byte(`{"files": [{"size": 100000000}]}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	prepared, err := chain.Prepare(fleet, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	choice := placement.NewPlacer(fleet, rand.NewPCG(1, 2)).Place(prepared, 1_700_000_000)
	fmt.Println(fleet.ID(choice.Slot), choice.Score)
	// Output: cn1 2
}

// A record that lacks something, or has it in another type, is kept with the field that is wrong as
// its fault.
func TestFaultNamesTheField(t *testing.T) {
	for change, field := range map[string]string{
		`"reserved": false|"reserved": "false"`:                       "reserved",
		`"memory_total_bytes": 68719476736|"x": 1`:                    "memory_total_bytes",
		`"memory_total_bytes": 68719476736|"memory_total_bytes": 0`:   "memory_total_bytes",
		`"disk_zone_quota_bytes": 0|"disk_zone_quota_bytes": 0.5`:     "disk_zone_quota_bytes",
		`"reservation_ratio": 0.25|"reservation_ratio": 2`:            "reservation_ratio",
		`{"ram": 1}|{"ram": "1"}`:                                     "overprovision_ratios.ram",
		`{"ram": 1}|{"gpu": 1}`:                                       "overprovision_ratios.gpu",
		`"Live Image": "20240101T000000Z"|"Live Image": ""`:           "sysinfo.Live Image",
		`"CPU Total Cores": 8|"CPU Total Cores": 0`:                   "sysinfo.CPU Total Cores",
		`"CPU Total Cores": 8|"CPU Total Cores": 8, "HVM API": "yes"`: "sysinfo.HVM API",
		`"Link Status": "up"|"Link Status": "odd"`:                    "sysinfo.Network Interfaces.net0.Link Status",
		`["external"]|["external", 1]`:                                "sysinfo.Network Interfaces.net0.NIC Names",
		`"state": "running"|"zone_state": "running"`:                  "vms.vm1.state",
		`"cpu_cap": 200|"cpu_cap": 0`:                                 "vms.vm1.cpu_cap",
		`"cpu_cap": 200|"quota": -1`:                                  "vms.vm1.quota",
	} {
		old, changed, _ := strings.Cut(change, "|")
		profile, err := triton.New(placement.NewNames())
		if err != nil {
			t.Fatal(err)
		}
		i := strings.LastIndex(record, old)
		s, err := profile.Server([]byte(record[:i] + changed + record[i+len(old):]))
		if err != nil || !strings.HasPrefix(s.Fault, field+" is ") {
			t.Errorf("%s: %v, fault %q, want one of %s", change, err, s.Fault, field)
		}
	}
}

// A text that is not JSON, and an unknown strategy, are refused with the field.
func TestRefusesWhatIsNotUnderstood(t *testing.T) {
	profile, err := triton.New(placement.NewNames())
	if err != nil {
		t.Fatal(err)
	}
	_, server := profile.Server([]byte(`[]`))
	_, vms := profile.Instances([]byte(`{`))
	_, tickets := profile.Tickets([]byte(`{}`))
	_, request := profile.Request(triton.Order{Package: []byte(`7`)})
	_, settings := triton.Settings([]byte(`{"server_spread": "max-disk"}`))
	for field, err := range map[string]error{
		"server": server, "vms": vms, "tickets": tickets, "package": request, "defaults.server_spread": settings,
		"defaults": profile.Override([]byte(`"x"`)),
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// A profile needs two names of its own.
func TestNewNeedsNames(t *testing.T) {
	names := placement.NewNames()
	for i := names.Len(); i < plimsoll.MaxResourceNames-1; i++ {
		names.Amounts(plimsoll.Resources{fmt.Sprint("r", i): 1})
	}
	if _, err := triton.New(names); err == nil {
		t.Error("a profile was made with one name left")
	}
}

// A request that is larger than any amount is not taken for none.
func TestHugeRequestsStayHuge(t *testing.T) {
	profile, err := triton.New(placement.NewNames())
	if err != nil {
		t.Fatal(err)
	}
	r, err := profile.Request(triton.Order{VM: []byte(`{"ram": 1e300}`)})
	if err != nil || r.Resources[plimsoll.Memory] != plimsoll.MaxAmount {
		t.Errorf("%v, %+v", err, r)
	}
}

// Triton's arithmetic costs no memory for the servers that are looked at.
func TestPlaceDoesNotAllocate(t *testing.T) {
	fleet := placement.NewFleet(placement.NewNames())
	profile, err := triton.New(fleet.Names)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		server, err := profile.Server([]byte(strings.Replace(record, "cn1", fmt.Sprint("cn", i), 1)))
		if err != nil {
			t.Fatal(err)
		}
		fleet.Add(&server)
	}
	settings, err := triton.Settings(
		[]byte(`{"weight_unreserved_ram": 2, "weight_unreserved_disk": 1, "weight_uniform_random": 0.5}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := placement.NewChain(placement.DefaultExpression(), profile.Stages(), nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	request, err := profile.Request(
		triton.Order{
			VM: []byte(`{"owner_uuid": "bob", "ram": 2048, "cpu_cap": 100}`), Package: []byte(`{"quota": 1024}`),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := chain.Prepare(fleet, request)
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Release()
	placer := placement.NewPlacer(fleet, rand.NewPCG(1, 2))
	if choice := placer.Place(prepared, 0); choice.Slot < 0 {
		t.Fatalf("no server for it: %+v", choice)
	}
	// The race detector adds two for the whole placement.
	if n := testing.AllocsPerRun(100, func() { placer.Place(prepared, 0) }); n > 2 {
		t.Errorf("a placement that looks at fifty servers allocates %v times", n)
	}
}

// No record, however odd, stops the fleet, and the amounts left are bounded.
func FuzzServer(f *testing.F) {
	f.Add(record)
	f.Add(
		`{"uuid": "a", "memory_total_bytes": "NaN", "disk_pool_size_bytes": 1e308, "sysinfo": {"CPU Online Count": -1e308}}`,
	)
	f.Add(
		`{"vms": [1, {"brand": "kvm", "cpu_cap": 1e30}], "traits": {"a": 1, "b": [2]}, "last_boot": "0001-01-01T00:00:00Z"}`,
	)
	f.Fuzz(func(t *testing.T, text string) {
		fleet := placement.NewFleet(placement.NewNames())
		profile, err := triton.New(fleet.Names)
		if err != nil {
			t.Fatal(err)
		}
		s, err := profile.Server([]byte(text))
		if err != nil {
			return
		}
		s.Fault, s.Setup, s.Status = "", true, placement.StatusRunning
		slot := fleet.Add(&s)
		chain, err := placement.CapacityChain(profile.Stages())
		if err != nil {
			t.Fatal(err)
		}
		list, err := placement.NewPlacer(fleet, rand.NewPCG(1, 2)).Capacities(chain, []int32{slot}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range list[0].Free {
			if n > plimsoll.MaxAmount || n < -plimsoll.MaxAmount {
				t.Errorf("%s: %d is free", name, n)
			}
		}
	})
}
