package placement

// commonPart is the largest bonus of a server for having many servers like it, as a part of the
// weight.
const commonPart = 0.02

// scoreStranded subtracts the custom resources that the placement would strand on a server from its
// score, and adds the stranded ones that it would use. Both are parts of the server's capacity.
//
// A part of a custom resource is stranded when too little cpu or memory is left beside it to use
// it. A server with 80 % of its gpus free but 30 % of its cpu has half its gpus stranded. A request
// without gpus therefore goes to servers without gpus, or with gpus in use. A request for much cpu
// and one gpu goes to servers with much cpu for each gpu. Servers on which nothing would be
// stranded score alike, and the scores by free memory fill them one after the other.
//
// A request for a custom resource also avoids, a little, servers with few others like them, because
// some requests can use only those.
func scoreStranded(b *Batch, set []int32) {
	weight, f := b.chain.Settings.Weights.UnreservedCustom, b.fleet
	if weight == 0 || f.Names.Len() == firstCustom {
		return
	}
	for _, i := range set {
		v := b.At(i)
		sum := 0.0
		for k := firstCustom; k < f.Names.Len(); k++ {
			if v.class.whole[k] > 0 {
				sum += v.stranded(k, 0) - v.stranded(k, 1)
			}
		}
		b.score[i] += float64(sum * weight)
	}
	if len(b.p.custom) > 0 {
		b.common(set, commonPart*weight)
	}
}

// common adds the weight to the servers of the largest class in the set. Servers of a smaller class
// get less of it, in proportion to their number.
func (b *Batch) common(set []int32, weight float64) {
	order := b.ranked(set, func(v *View) uint64 { return uint64(v.row.class) })
	most, from := 0, 0
	for i := range order {
		if order[i].key != order[from].key {
			from = i
		}
		most = max(most, i+1-from)
	}
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && order[to].key == order[from].key {
			to++
		}
		for _, r := range order[from:to] {
			b.score[r.at] += float64(float64(to-from) / float64(most) * weight)
		}
		from = to
	}
}

// stranded returns the part of a resource that is free without cpu or memory beside it, once so
// many instances of the request are placed.
func (v *View) stranded(resource int, instances int64) float64 {
	beside := min(v.part(IndexCPU, instances), v.part(IndexMemory, instances))
	return max(0, v.part(resource, instances)-beside)
}

// part returns the part of a resource that is free once so many instances of the request are
// placed; 1 if the server has none of the resource.
func (v *View) part(resource int, instances int64) float64 {
	whole := v.class.free(resource, 0)
	if whole <= 0 {
		return 1
	}
	return max(0, float64(v.Free(resource)-instances*v.p.needs[resource])/float64(whole))
}
