package triton

import (
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Order describes a machine to be provisioned.
type Order struct {
	VM, Package, Image json.RawMessage

	// Bare leaves the ratios of the package as they are. Otherwise a package without any ratio gets
	// the ratio 1 for memory.
	Bare bool
}

// Request reads an order into a request.
func (p *Profile) Request(order Order) (*placement.Request, error) {
	var vm, pkg, img object
	for _, part := range []struct {
		field string
		data  []byte
		into  *object
	}{{"vm", order.VM, &vm}, {"package", order.Package, &pkg}, {"image", order.Image, &img}} {
		o, err := readObject(part.field, part.data)
		if err != nil {
			return nil, err
		}
		*part.into = o
	}
	r := &placement.Request{Owner: text(vm["owner_uuid"]), OwnOnly: true, AnyClass: pkg == nil}
	r.Preferences.Strategy, _ = strategy(pkg["alloc_server_spread"])
	r.Constraints.Class = p.packageRatios(pkg, order.Bare)
	r.Constraints.Traits = wantedTraits(vm, pkg, img)
	r.Constraints.Networks = wantedNetworks(vm)
	sizes(r, vm, pkg, img)
	for _, table := range []any{pkg["min_platform"], sub(img["requirements"])["min_platform"]} {
		r.Platforms = append(r.Platforms, plimsoll.PlatformRange{Min: stamps(table)})
	}
	r.Platforms = append(r.Platforms, plimsoll.PlatformRange{Max: stamps(sub(img["requirements"])["max_platform"])})
	if truthy(vm["docker"]) {
		list, _ := sub(vm["internal_metadata"])["docker:volumesfrom"].([]any)
		r.Constraints.VolumesFrom = texts(list)
	}
	hints := sub(vm["locality"])
	if truthy(hints["strict"]) {
		r.Constraints.Near, r.Constraints.Far = machineIDs(hints["near"]), machineIDs(hints["far"])
	} else {
		r.Preferences.Near, r.Preferences.Far = machineIDs(hints["near"]), machineIDs(hints["far"])
	}
	return r, nil
}

func (p *Profile) packageRatios(pkg object, bare bool) map[string]float64 {
	if pkg == nil {
		return nil
	}
	if p.override != nil {
		return p.override
	}
	ratios := map[string]float64{}
	for _, r := range ratioNames {
		v := pkg[r.pack]
		if v == nil {
			v = pkg[r.old]
		}
		if n := number(v); n > 0 {
			ratios[r.name] = n
		}
	}
	if len(ratios) == 0 && !bare {
		ratios[plimsoll.Memory] = 1
	}
	return ratios
}

// sizes sets the amounts that a request asks for and the amounts that must be free.
func sizes(r *placement.Request, vm, pkg, img object) {
	either := func(a, b any) any {
		if truthy(a) {
			return a
		}
		return b
	}
	r.Resources = plimsoll.Resources{
		plimsoll.CPU:    amount(either(vm["cpu_cap"], pkg["cpu_cap"]), milliPercent),
		plimsoll.Memory: amount(either(vm["ram"], pkg["max_physical_memory"]), mib),
	}
	brand := text(vm["brand"])
	hvm := brand == "kvm" || brand == "bhyve"
	r.Needs = plimsoll.Resources{}
	if hvm {
		r.Needs[plimsoll.Memory] = r.Resources[plimsoll.Memory]
	}
	quota := number(vm["quota"]) * 1024
	if quota == 0 {
		quota = number(pkg["quota"])
	}
	if quota <= 0 {
		return
	}
	files := 0.0
	list, _ := img["files"].([]any)
	for _, f := range list {
		files += number(sub(f)["size"])
	}
	need := quota
	if hvm || img["type"] == "zvol" {
		need += number(img["image_size"])
	} else if ratio := r.Constraints.Class[plimsoll.Disk]; ratio > 0 {
		need = math.Ceil(quota / ratio)
	}
	r.Resources[plimsoll.Disk] = amount(quota, mib)
	r.Needs[plimsoll.Disk] = amount(need+math.Ceil(files/mib)+diskReserve, mib)
}

// wantedTraits returns the traits of the machine, or else of its package, together with the
// image's.
func wantedTraits(vm, pkg, img object) map[string]plimsoll.Trait {
	traits := readTraits(pkg["traits"])
	if _, ok := vm["traits"].(object); ok {
		traits = readTraits(vm["traits"])
	}
	maps.Copy(traits, readTraits(img["traits"]))
	return traits
}

// wantedNetworks returns lists of alternative tags; nil if the machine names no networks.
func wantedNetworks(vm object) [][]string {
	if list, ok := vm["nic_tag_requirements"].([]any); ok {
		out := make([][]string, 0, len(list))
		for _, item := range list {
			alternatives, _ := item.([]any)
			out = append(out, texts(alternatives))
		}
		return out
	}
	list, ok := vm["nic_tags"].([]any)
	if !ok {
		return nil
	}
	out := make([][]string, 0, len(list))
	for _, tag := range texts(list) {
		out = append(out, []string{tag})
	}
	return out
}

// stamps reads a table from release to platform.
func stamps(v any) map[string]string {
	o := sub(v)
	table := map[string]string{}
	for _, release := range slices.Sorted(maps.Keys(o)) {
		if stamp := text(o[release]); stamp != "" && release != "" {
			table[release] = stamp
		}
	}
	return table
}

// machineIDs reads an id or a list of them.
func machineIDs(v any) []plimsoll.Selector {
	list, ok := v.([]any)
	if !ok && truthy(v) {
		list = []any{v}
	}
	var out []plimsoll.Selector
	for _, id := range texts(list) {
		out = append(out, plimsoll.Selector{Task: id})
	}
	return out
}

func strategy(v any) (s plimsoll.Strategy, known bool) {
	s, known = map[string]plimsoll.Strategy{
		"min-ram": plimsoll.StrategyPack, "max-ram": plimsoll.StrategySpread,
		"min-owner": plimsoll.StrategyFewestOwner, "random": plimsoll.StrategyRandom,
	}[text(v)]
	return s, known || !truthy(v)
}

// Settings reads the defaults of a designation. A weight that they do not have is 0.
func Settings(defaults []byte) (placement.Settings, error) {
	s := placement.DefaultSettings()
	d, err := readObject("defaults", defaults)
	if err != nil {
		return s, err
	}
	var known bool
	if s.Strategy, known = strategy(d["server_spread"]); !known {
		return s, plimsoll.Invalid(
			"defaults.server_spread", "is %v; give min-ram, max-ram, min-owner or random", d["server_spread"],
		)
	}
	s.Capness = !off(d, "filter_capness")
	s.Headnodes = off(d, "filter_headnode")
	s.NoRoom = off(d, "filter_min_resources")
	s.LargeServers = !off(d, "filter_large_servers")
	s.MaxInstances = defaultLimit
	if n := number(d["filter_vm_limit"]); n > 0 {
		s.MaxInstances = int(n)
	}
	s.Weights = placement.Weights{
		UnreservedMemory: number(d["weight_unreserved_ram"]), UnreservedDisk: number(d["weight_unreserved_disk"]),
		OwnerInstances: number(d["weight_num_owner_zones"]), CurrentPlatform: number(d["weight_current_platform"]),
		NextReboot: number(d["weight_next_reboot"]), Random: number(d["weight_uniform_random"]),
	}
	if rules := sub(d["filter_owner_server"]); len(rules) > 0 {
		s.OwnerRules = map[string]string{}
		for _, owner := range slices.Sorted(maps.Keys(rules)) {
			s.OwnerRules[owner] = rule(text(rules[owner]))
		}
	}
	return s, nil
}

// ruleReplacements turn an owner rule, which is JavaScript, into a placement.Rule.
var ruleReplacements = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`===`), "=="},
	{regexp.MustCompile(`!==`), "!="},
	{regexp.MustCompile(`\bserver\.uuid\b`), "node.id"},
	{regexp.MustCompile(`\bserver\.unreserved_ram\b`), "(node.free.memory / 1048576)"},
	{regexp.MustCompile(`\bserver\.unreserved_disk\b`), "(node.free.disk / 1048576)"},
	{regexp.MustCompile(`\bserver\.unreserved_cpu\b`), "(node.free.cpu / 10)"},
	{regexp.MustCompile(`\bserver\.ram\b`), "(node.capacity.memory / 1048576)"},
	{regexp.MustCompile(`\bserver\.(headnode|reservoir|traits)\b`), "node.$1"},
}

func rule(script string) string {
	for _, r := range ruleReplacements {
		script = r.from.ReplaceAllString(script, r.to)
	}
	return script
}
