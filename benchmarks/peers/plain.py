"""FedAvg as research code has it: a loop over clients in one process, every client with a model of its own."""

import torch
from workload import LEARNING_RATE, Clock, LeNet5, read_arguments, read_clients, test, train


def main() -> None:
    workload, clock = read_arguments(), Clock()
    torch.set_num_threads(workload.workers)
    torch.manual_seed(0)
    data = read_clients(workload)
    server = LeNet5()
    models = [LeNet5() for _ in data]
    optimizers = [torch.optim.Adam(model.parameters(), lr=LEARNING_RATE) for model in models]
    for _ in range(workload.rounds):
        weights = server.state_dict()
        for model, optimizer, (images, labels) in zip(models, optimizers, data, strict=True):
            model.load_state_dict(weights)
            train(model, optimizer, images, labels)
        states = [model.state_dict() for model in models]
        server.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in weights})
        clock.tick()
    clock.answer(workload, test(server, workload))


if __name__ == "__main__":
    main()
