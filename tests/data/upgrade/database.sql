BEGIN TRANSACTION;
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    family TEXT NOT NULL,
    key TEXT NOT NULL
);
INSERT INTO "keys" VALUES(1,'0b387c76b0dd1675b89162c8935b873c','e79a910e5bfacc94206975f6f39fea4e','{"arguments":{"activation":"relu","bias":true,"dilation":[1,1],"dtype":"float32","filters":4,"groups":1,"input":[1,3,4,4],"kernel":[1,1],"layout":"NCHW","output_layout":"NHWC","padding":[0,0,0,0],"stride":[1,1]},"conditions":{"cold_bytes":0,"threads":2,"versions":{"apache-tvm":"0.27.0.post1","chameleon-tuner-tvm":"0.1.0"}},"fingerprint":"8847ae8eb346818d","operator":"conv2d","space":"auto","target":"{\"keys\": [\"cpu\"], \"kind\": \"llvm\", \"mcpu\": \"x86-64-v2\", \"num-cores\": 2}"}');
INSERT INTO "keys" VALUES(2,'e93af8ce4056a98d64faa5e798e03533','e79a910e5bfacc94206975f6f39fea4e','{"arguments":{"activation":"relu","bias":true,"dilation":[1,1],"dtype":"float32","filters":4,"groups":1,"input":[1,3,4,4],"kernel":[1,1],"layout":"NCHW","output_layout":"NCHW","padding":[0,0,0,0],"stride":[1,1]},"conditions":{"cold_bytes":0,"threads":2,"versions":{"apache-tvm":"0.27.0.post1","chameleon-tuner-tvm":"0.1.0"}},"fingerprint":"aeb24e7fe44ca15a","operator":"conv2d","space":"auto","target":"{\"keys\": [\"cpu\"], \"kind\": \"llvm\", \"mcpu\": \"x86-64-v2\", \"num-cores\": 2}"}');
INSERT INTO "keys" VALUES(3,'27f28bf28c094f860f400c26a2a793b3','e477dc39ef009ac4c282a1f56a2ff477','{"arguments":{"bias":true,"dtype":"float32","input":[1,4],"units":2},"conditions":{"cold_bytes":0,"threads":2,"versions":{"apache-tvm":"0.27.0.post1","chameleon-tuner-tvm":"0.1.0"}},"fingerprint":"f8674c6859021b8a","operator":"dense","space":"auto","target":"{\"keys\": [\"cpu\"], \"kind\": \"llvm\", \"mcpu\": \"x86-64-v2\", \"num-cores\": 2}"}');
CREATE TABLE records (
    key_id INTEGER NOT NULL REFERENCES keys (id),
    config TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (key_id, config)
) WITHOUT ROWID;
INSERT INTO "records" VALUES(1,'[1,2,0,0,0,1,0]','{"build_seconds":0.3100850609916961,"config":[1,2,0,0,0,1,0],"knobs":{"channel_block":3,"input":"copy","outermost":"positions","tile_columns":4,"tile_rows":2,"tile_vectors":1,"unroll":1},"max_relative_error":4.76803043932255e-08,"measured_at":1796050857.5730522,"run_seconds":0.09401385000091977,"seconds":[4.232837127845884e-08,4.047373029772329e-08,4.230122591943958e-08],"spent_seconds":0.0}');
INSERT INTO "records" VALUES(1,'[2,1,0,0,0,1,0]','{"build_seconds":0.3773556839878438,"config":[2,1,0,0,0,1,0],"knobs":{"channel_block":3,"input":"copy","outermost":"positions","tile_columns":2,"tile_rows":4,"tile_vectors":1,"unroll":1},"max_relative_error":4.76803043932255e-08,"measured_at":1796050857.5730689,"run_seconds":0.07648680100101046,"seconds":[4.2783625730994156e-08,4.263586744639376e-08,4.200428849902534e-08],"spent_seconds":0.0}');
INSERT INTO "records" VALUES(2,'[0,1,2,0,0,0,1,0,0,0,0,0,0]','{"build_seconds":0.39254749899555463,"config":[0,1,2,0,0,0,1,0,0,0,0,0,0],"knobs":{"algorithm":"direct","channel_block":3,"input":"copy","outermost":"positions","planar_band":4,"planar_channels":1,"planar_input":"copy","planar_rows":1,"planar_vectors":1,"tile_columns":4,"tile_rows":2,"tile_vectors":1,"unroll":1},"max_relative_error":4.76803043932255e-08,"measured_at":1796050858.1420026,"run_seconds":0.01769535399216693,"seconds":[4.1726467559217305e-08,4.181318228630278e-08,4.171266735324408e-08],"spent_seconds":0.0}');
INSERT INTO "records" VALUES(2,'[1,0,0,0,0,0,0,0,0,1,3,0,1]','{"build_seconds":0.2781464539875742,"config":[1,0,0,0,0,0,0,0,0,1,3,0,1],"knobs":{"algorithm":"planar","channel_block":3,"input":"copy","outermost":"channels","planar_band":4,"planar_channels":4,"planar_input":"in_place","planar_rows":1,"planar_vectors":2,"tile_columns":1,"tile_rows":1,"tile_vectors":1,"unroll":1},"max_relative_error":4.76803043932255e-08,"measured_at":1796050858.1419914,"run_seconds":0.014788928005145863,"seconds":[2.2301148225469725e-08,2.2380132219902576e-08,2.2379088378566456e-08],"spent_seconds":0.0}');
INSERT INTO "records" VALUES(3,'[0,0,0,0,1,0,0]','{"build_seconds":0.19132383500982542,"config":[0,0,0,0,1,0,0],"knobs":{"channel_block":4,"input":"in_place","outermost":"channels","tile_columns":1,"tile_rows":1,"tile_vectors":1,"unroll":1},"max_relative_error":2.368221577130849e-08,"measured_at":1796050880.4847002,"run_seconds":0.015194486011750996,"seconds":[1.0892844428622286e-08,1.141313634745461e-08,1.1412246351014596e-08],"spent_seconds":0.23816816550242947}');
INSERT INTO "records" VALUES(3,'[0,0,0,0,1,1,0]','{"build_seconds":0.18404465100320522,"config":[0,0,0,0,1,1,0],"knobs":{"channel_block":4,"input":"in_place","outermost":"positions","tile_columns":1,"tile_rows":1,"tile_vectors":1,"unroll":1},"max_relative_error":2.368221577130849e-08,"measured_at":1796050880.4854457,"run_seconds":0.012979389997781254,"seconds":[1.0694561774023232e-08,1.072439281942978e-08,1.0631203801478354e-08],"spent_seconds":0.23816816550242947}');
CREATE INDEX families ON keys (family);
COMMIT;
PRAGMA user_version = 1;
PRAGMA application_id = 1130918499;
