package qos

// InProportion returns Throttle and Restore for a Metric such as requests in a second: the value of
// a task is in proportion to its processor time. A task that loses a fifth of its processor time
// loses a fifth of its value.
func InProportion(metric string) (throttle, restore func(t *Task, by Throttling) ([]QuotaChange, int64)) {
	share := func(t *Task, cpu int64) int64 {
		if value := t.Values[metric]; t.CPUKnown && t.CPU > 0 && value > 0 && cpu > 0 {
			return mulDiv(value, cpu, t.CPU)
		}
		return 0
	}
	throttle = func(t *Task, by Throttling) ([]QuotaChange, int64) {
		changes, release := ThrottleCPU(t, by)
		return changes, share(t, release)
	}
	restore = func(t *Task, by Throttling) ([]QuotaChange, int64) {
		changes, use := RestoreCPU(t, by)
		return changes, share(t, use)
	}
	return throttle, restore
}

// throttleableOwn returns the amount that throttling a task to its floor would still release, for a
// metric with its own Throttle.
func (r *round) throttleableOwn(m *Metric, i int32) int64 {
	by := r.merge(i).throttling
	all := by
	all.Step = 100
	_, release := m.Throttle(&r.tasks[i], all)
	if r.acted[i]&bit(Throttle) != 0 { // a step of this plan has taken a part of it
		_, taken := m.Throttle(&r.tasks[i], by)
		release -= taken
	}
	return max(release, 0)
}
