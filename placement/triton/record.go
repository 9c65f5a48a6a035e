package triton

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

func readObject(field string, data []byte) (object, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, wrong(field, err)
	}
	return o, nil
}

// Server reads a server of CNAPI, with its machines if it has any. A record that the original
// refuses gets a Fault.
func (p *Profile) Server(data []byte) (placement.Server, error) {
	o, err := readObject("server", data)
	if err != nil {
		return placement.Server{}, err
	}
	info := sub(o["sysinfo"])
	s := placement.Server{
		ID: text(o["uuid"]), Setup: truthy(o["setup"]), Status: text(o["status"]), Fault: fault(o),
		Capacity: plimsoll.Resources{
			plimsoll.CPU:    amount(cores(info), 1000),
			plimsoll.Memory: amount(o["memory_total_bytes"], 1),
			plimsoll.Disk:   amount(o["disk_pool_size_bytes"], 1),
		},
		NodeFacts: plimsoll.NodeFacts{
			Traits: readTraits(o["traits"]), Networks: networks(info), Release: text(info["SDC Version"]),
			Platform: text(info["Live Image"]),
			Headnode: truthy(o["headnode"]), Reservoir: truthy(o["reservoir"]), Overprovision: p.serverRatios(o),
			LastBoot: seconds(o["last_boot"]), NextReboot: seconds(o["next_reboot"]),
		},
	}
	if truthy(o["reserved"]) {
		s.Reserved = "is reserved"
	}
	if s.Release == "" {
		s.Release = "6.5"
	}
	if s.Platform == "" {
		s.Platform = text(o["current_platform"])
	}
	if r := number(o["reservation_ratio"]); r > 0 && r < 1 {
		s.Reserve = map[string]float64{plimsoll.Memory: r}
	}
	s.Instances = p.machines(o["vms"])
	p.hosts[s.ID] = p.host(o, info)
	return s, nil
}

func cores(info object) any {
	if v, ok := info["CPU Online Count"]; ok {
		return v
	}
	return info["CPU Total Cores"]
}

func (p *Profile) host(o, info object) host {
	_, ratios := o["overprovision_ratios"].(object)
	h := host{
		described: info != nil, ratios: ratios || p.override != nil, cores: number(cores(info)),
		memory:  number(o["memory_total_bytes"]),
		reserve: number(o["reservation_ratio"]), pool: number(o["disk_pool_size_bytes"]) * poolShare,
		quota: number(o["disk_zone_quota_bytes"]), filled: number(o["disk_zone_quota_used_bytes"]),
		alloc: number(o["disk_pool_alloc_bytes"]),
	}
	for _, key := range []string{
		"disk_system_used_bytes", "disk_installed_images_used_bytes", "disk_cores_quota_used_bytes",
		"disk_kvm_zvol_volsize_bytes",
	} {
		h.fixed += number(o[key])
	}
	return h
}

func (p *Profile) serverRatios(o object) map[string]float64 {
	if p.override != nil {
		return p.override
	}
	ratios := map[string]float64{}
	given := sub(o["overprovision_ratios"])
	for _, r := range ratioNames {
		if n := number(given[r.server]); n > 0 && n <= plimsoll.MaxRatio {
			ratios[r.name] = n
		}
	}
	return ratios
}

// readTraits reads traits. A value that is neither a flag nor text matches nothing.
func readTraits(v any) map[string]plimsoll.Trait {
	o := sub(v)
	traits := make(map[string]plimsoll.Trait, len(o))
	for _, key := range slices.Sorted(maps.Keys(o)) {
		switch value := o[key].(type) {
		case bool:
			traits[key] = plimsoll.Trait{Flag: value}
		case string:
			traits[key] = plimsoll.Trait{Words: []string{value}}
		default:
			list, _ := value.([]any)
			traits[key] = plimsoll.Trait{Words: texts(list)}
		}
	}
	return traits
}

// texts returns the texts of a list, never nil.
func texts(list []any) []string {
	out := make([]string, 0, len(list))
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// networks returns the tags of the interfaces, true if an interface with the tag is up. It returns
// nil if the server has no interfaces.
func networks(info object) map[string]bool {
	physical, ok := info["Network Interfaces"].(object)
	if !ok {
		return nil
	}
	up := map[string]bool{}
	for _, set := range []struct {
		interfaces object
		tags       string
	}{{physical, "NIC Names"}, {sub(info["Virtual Network Interfaces"]), "Overlay Nic Tags"}} {
		for _, name := range slices.Sorted(maps.Keys(set.interfaces)) {
			nic := sub(set.interfaces[name])
			list, _ := nic[set.tags].([]any)
			for _, tag := range texts(list) {
				up[tag] = up[tag] || nic["Link Status"] == "up"
			}
		}
	}
	return up
}

// Instances reads a list of machines of VMAPI.
func (p *Profile) Instances(data []byte) ([]placement.Instance, error) {
	var raw any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, wrong("vms", err)
	}
	return p.machines(raw), nil
}

// machines reads machines, in a list or by id.
func (p *Profile) machines(raw any) []placement.Instance {
	var out []placement.Instance
	switch v := raw.(type) {
	case object:
		for _, id := range slices.Sorted(maps.Keys(v)) {
			if o, ok := v[id].(object); ok {
				out = append(out, machine(id, o))
			}
		}
	case []any:
		for _, item := range v {
			if o, ok := item.(object); ok {
				out = append(out, machine(text(o["uuid"]), o))
			}
		}
	}
	return out
}

func machine(id string, o object) placement.Instance {
	in := placement.Instance{ID: id, Owner: text(o["owner_uuid"]), Modified: max(0, seconds(o["last_modified"]))}
	in.Resources = plimsoll.Resources{plimsoll.CPU: amount(o["cpu_cap"], milliPercent)}
	in.Resources[memoryName(text(o["brand"]))] = amount(o["max_physical_memory"], mib)
	if o["brand"] == "kvm" {
		in.Resources[Volumes] = kvmQuota
		in.Left = plimsoll.Resources{Volumes: kvmQuota}
	}
	in.Failed = o["state"] == "failed"
	return in
}

// memoryName returns the resource under which the memory of a machine is booked.
func memoryName(brand string) string {
	if brand == "kvm" || brand == "bhyve" {
		return HVMMemory
	}
	return plimsoll.Memory
}

// Tickets reads tickets and returns those of machines that are being provisioned.
func (p *Profile) Tickets(data []byte) ([]placement.Ticket, error) {
	var list []object
	if len(data) > 0 {
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, wrong("tickets", err)
		}
	}
	var out []placement.Ticket
	for _, o := range list {
		if o["scope"] != "vm" || o["action"] != "provision" || o["status"] != "queued" && o["status"] != "active" {
			continue
		}
		t := placement.Ticket{ID: text(o["id"]), Server: text(o["server_uuid"])}
		if extra, ok := o["extra"].(object); ok {
			in := machine(t.ID, extra)
			in.Modified, in.Failed = 0, false
			provision(&in, extra)
			t.Instance = &in
		}
		out = append(out, t)
	}
	return out, nil
}

// provision adds the amounts of a machine that the record of its server does not yet include.
func provision(in *placement.Instance, extra object) {
	size := 0.0
	disks, _ := extra["disks"].([]any)
	for _, d := range disks {
		size += number(sub(d)["size"])
	}
	volumes := (amount(size, mib) + gib - 1) / gib * gib
	in.Resources[plimsoll.Disk] = amount(extra["quota"], gib)
	switch extra["brand"] {
	case "kvm":
		in.Resources[HVMMemory] += kvmOverhead
		in.Resources[Volumes] += volumes
	case "bhyve":
		in.Resources[HVMMemory] += bhyveOverhead
		in.Resources[plimsoll.Disk] += volumes
	}
}
