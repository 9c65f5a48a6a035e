package triton

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// fault returns the first objection of the original's check of a server's record; empty: none.
func fault(o object) string {
	if _, ok := o["uuid"].(string); !ok {
		return problem("uuid", o["uuid"])
	}
	for _, key := range []string{
		"memory_available_bytes", "disk_pool_alloc_bytes", "disk_system_used_bytes", "disk_installed_images_used_bytes",
		"disk_cores_quota_used_bytes", "disk_zone_quota_bytes", "disk_kvm_quota_bytes", "disk_kvm_zvol_volsize_bytes",
	} {
		if !integer(o[key], 0) {
			return problem(key, o[key])
		}
	}
	for _, key := range []string{"memory_total_bytes", "disk_pool_size_bytes"} {
		if !integer(o[key], 1) {
			return problem(key, o[key])
		}
	}
	for _, key := range []string{"reserved", "setup"} {
		if _, ok := o[key].(bool); !ok {
			return problem(key, o[key])
		}
	}
	if r, ok := o["reservation_ratio"].(float64); !ok || !(r >= 0 && r <= 1) {
		return problem("reservation_ratio", o["reservation_ratio"])
	}
	for _, check := range []func(object) string{ratioFault, infoFault, machineFault} {
		if why := check(o); why != "" {
			return why
		}
	}
	return ""
}

func problem(field string, v any) string {
	if v == nil {
		return field + " is missing"
	}
	return fmt.Sprintf("%s is %v", field, v)
}

func integer(v any, least float64) bool {
	n, ok := v.(float64)
	return ok && n == math.Trunc(n) && n >= least
}

func ratioFault(o object) string {
	given, there := o["overprovision_ratios"]
	ratios, ok := given.(object)
	if there && !ok {
		return problem("overprovision_ratios", given)
	}
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		if n, ok := ratios[name].(float64); !ok || !(n > 0) ||
			!slices.Contains([]string{"ram", "disk", "cpu", "io", "net"}, name) {
			return problem("overprovision_ratios."+name, ratios[name])
		}
	}
	return ""
}

func infoFault(o object) string {
	info, ok := o["sysinfo"].(object)
	if !ok {
		return problem("sysinfo", o["sysinfo"])
	}
	if text(info["Live Image"]) == "" {
		return problem("sysinfo.Live Image", info["Live Image"])
	}
	for _, count := range []struct {
		key   string
		least float64
	}{{"CPU Total Cores", 1}, {"CPU Online Count", 1}, {"Bhyve Max Vcpus", 0}} {
		if v, there := info[count.key]; there && !integer(v, count.least) {
			return problem("sysinfo."+count.key, v)
		}
	}
	for _, key := range []string{"Bhyve Capable", "HVM API"} {
		v, there := info[key]
		if _, ok := v.(bool); there && !ok {
			return problem("sysinfo."+key, v)
		}
	}
	nics, ok := info["Network Interfaces"].(object)
	if !ok {
		return problem("sysinfo.Network Interfaces", info["Network Interfaces"])
	}
	for _, name := range slices.Sorted(maps.Keys(nics)) {
		nic := sub(nics[name])
		if !slices.Contains([]string{"up", "down", "unknown"}, text(nic["Link Status"])) {
			return problem("sysinfo.Network Interfaces."+name+".Link Status", nic["Link Status"])
		}
		tags, ok := nic["NIC Names"].([]any)
		if !ok || len(texts(tags)) != len(tags) {
			return problem("sysinfo.Network Interfaces."+name+".NIC Names", nic["NIC Names"])
		}
	}
	return ""
}

func machineFault(o object) string {
	if v, there := o["traits"]; there && sub(v) == nil {
		return problem("traits", v)
	}
	given, there := o["vms"]
	vms, ok := given.(object)
	if there && !ok {
		return problem("vms", given)
	}
	for _, id := range slices.Sorted(maps.Keys(vms)) {
		vm, ok := vms[id].(object)
		quota, hasQuota := vm["quota"]
		limit, hasLimit := vm["cpu_cap"]
		size, isNumber := quota.(float64)
		switch {
		case !ok:
			return problem("vms."+id, vms[id])
		case vm["owner_uuid"] == nil:
			return problem("vms."+id+".owner_uuid", nil)
		case vm["state"] == nil:
			return problem("vms."+id+".state", nil)
		case !integer(vm["max_physical_memory"], 1):
			return problem("vms."+id+".max_physical_memory", vm["max_physical_memory"])
		case hasQuota && (!isNumber || size < 0):
			return problem("vms."+id+".quota", quota)
		case hasLimit && !integer(limit, 1):
			return problem("vms."+id+".cpu_cap", limit)
		}
	}
	return ""
}
