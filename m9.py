from chameleon_tvm.quick_tvm import tirx, tvm
from chameleon_tvm.spaces.loops.trees import substituted
for dt in ('int32','int64'):
    i=tirx.Var('i',dt)
    for bound in (None,18):
        a=tvm.sym.Analyzer()
        if bound: a.bind(i,tvm.ir.Range.from_min_extent(tirx.IntImm(dt,0),tirx.IntImm(dt,bound)))
        for e in ((2-i)%8, (2-i)%8*1+0, (7-i)%8, (21-i)//2):
            for nm in ('simplify','canonical_simplify','rewrite_simplify'):
                s=getattr(a,nm)(e); b=tvm.sym.Analyzer()
                w=[v for v in range(18) if int(b.simplify(substituted(e,i,tirx.IntImm(dt,v))))!=int(b.simplify(substituted(s,i,tirx.IntImm(dt,v))))]
                print(dt,bound,e,nm,s,'WRONG' if w else '')
