"""One master with several models, each on workers that carry its label."""
import pathlib
import signal
import tempfile
import time
import unittest

from cluster import Master, Process
from harness import BINARY, PATIENCE, SMOLLM2, free_port
from tiny_models import chain_model


class TwoModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        chain = chain_model(folder / "chain.gguf", b"?ABC")
        cls.port = free_port()
        config = folder / "cluster.yaml"
        config.write_text(f"""
cluster_host: 127.0.0.1
cluster_port: {cls.port}
token: sesame
max_model_len: 256
models:
  - model: {SMOLLM2}
    served_model_name: [chat, smol]
    tp: 2
    worker_label: pool=chat
  - model: {chain}
    served_model_name: chain
    worker_label: pool=chain
""")
        cls.master = Master(["--config", config])
        cls.workers = {}
        cls.master.wait_live()

    @classmethod
    def tearDownClass(cls):
        cls.master.stop()
        for worker in cls.workers.values():
            worker.stop()
        cls.folder.cleanup()

    def start(self, name, pool, token="sesame"):
        self.workers[name] = Process([BINARY, "worker", "--master", f"127.0.0.1:{self.port}", "--name", name, "--threads", 1, "--label",
                                      f"pool={pool}"], env={"STAFFEL_TOKEN": token})

    def wait(self, model, status, within_s=20):
        end = time.monotonic() + within_s * PATIENCE
        while (got := self.master.complete("?", model=model, max_tokens=2)).status != status:
            self.assertLess(time.monotonic(), end, f"{model}: {got.status} {got.body[:300]}\n{self.master.output()[-2000:]}")
            time.sleep(.05)
        return got

    def test_models_come_and_go_apart(self):
        self.assertIn("waits for", self.wait("chain", 503).error["message"])
        self.start("c0", "chain")
        self.assertEqual(self.wait("chain", 200).json["model"], "chain")
        self.assertEqual(self.master.get("/health").status, 200)   # one of them is served
        waiting = self.wait("chat", 503)
        self.assertIn("pool=chat", waiting.error["message"])
        self.assertEqual([m["id"] for m in self.master.get("/v1/models").json["data"]], ["chain"])

        self.start("a0", "chat")
        self.start("a1", "chat")
        self.wait("smol", 200)
        unknown = self.master.complete("?", model="nope")
        self.assertEqual(unknown.status, 404)
        self.assertIn("'chat', 'chain'", unknown.error["message"])
        unnamed = self.master.complete("?")
        self.assertEqual(unnamed.status, 400)
        pools = {pool["model"]: [rank["worker"] for rank in pool["replicas"][0]["ranks"]]
                 for pool in self.master.get("/v1/cluster").json["pools"]}
        self.assertEqual((sorted(pools["chat"]), pools["chain"]), (["a0", "a1"], ["c0"]))

        self.workers["c0"].send(signal.SIGKILL)
        end = time.monotonic() + 5
        while self.master.get("/v1/cluster").json["pools"][1]["replicas"][0]["state"] == "serving":
            self.assertLess(time.monotonic(), end)
        self.assertEqual(self.master.complete("?", model="chat", max_tokens=2).status, 200)
        self.start("c1", "chain")
        self.wait("chain", 200)

        self.start("thief", "chain", token="guess")
        self.assertEqual(self.workers["thief"].wait(10), 1)
        self.assertIn("token", self.workers["thief"].output())


if __name__ == "__main__":
    unittest.main()
